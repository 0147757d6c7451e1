import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
/**
 * Answers groups, read as lines of text, with the assignments of Kafka's assignor of streams groups. See task_assignors.py.
 *
 * Since 4.4 the interfaces are in another package, a member has another class, and offsets of tasks: all are used by reflection.
 */
public final class TaskAssignors {
    private static final String PACKAGE = "org.apache.kafka.coordinator.group.streams.assignor.";

    private final Map<String, Integer> tasks = new TreeMap<>();
    private final Set<String> stateful = new HashSet<>();
    private final Map<String, Object> members = new HashMap<>();

    public static void main(String[] arguments) throws IOException, ReflectiveOperationException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        TaskAssignors group = new TaskAssignors();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split(" ");
            switch (fields[0]) {
                case "subtopology" -> group.addSubtopology(fields[1], Integer.parseInt(fields[2]), fields[3].equals("stateful"));
                case "member" -> group.addMember(fields[1], fields[2], fields[3], fields[4], fields.length > 5 ? fields[5] : "-");
                default -> {
                    group.answer(fields[1], out);
                    group = new TaskAssignors();
                }
            }
        }
        out.flush();
    }

    private void addSubtopology(String id, int count, boolean isStateful) {
        tasks.put(id, count);
        if (isStateful) {
            stateful.add(id);
        }
    }

    private void addMember(String id, String processId, String active, String standby, String offsets) throws ReflectiveOperationException {
        Optional<String> none = Optional.empty();
        Object member;
        if (isSince44()) {
            Map<String, Map<Integer, Long>> restored = new HashMap<>();
            for (String one : offsets.equals("-") ? new String[0] : offsets.split(",")) {
                String[] parts = one.split("[_=]");
                restored.computeIfAbsent(parts[0], name -> new HashMap<>()).put(Integer.parseInt(parts[1]), Long.parseLong(parts[2]));
            }
            member = made("MemberMetadataAndStateImpl",
                none, none, processId, Map.of(), tasksOf(active), tasksOf(standby), Map.of(), restored, Map.of());
        } else {
            member = made("AssignmentMemberSpec",
                none, none, tasksOf(active), tasksOf(standby), Map.of(), processId, Map.of(), Map.of(), Map.of());
        }
        members.put(id, member);
    }

    private static boolean isSince44() {
        return TaskAssignors.class.getClassLoader().getResource(PACKAGE.replace('.', '/') + "MemberMetadataAndStateImpl.class") != null;
    }

    /** A new object of a class of the assignor, by its first constructor. */
    private static Object made(String name, Object... arguments) throws ReflectiveOperationException {
        return Class.forName(PACKAGE + name).getConstructors()[0].newInstance(arguments);
    }

    private static Map<String, Set<Integer>> tasksOf(String text) {
        Map<String, Set<Integer>> read = new HashMap<>();
        if (!text.equals("-")) {
            for (String task : text.split(",")) {
                String[] parts = task.split("_");
                read.computeIfAbsent(parts[0], id -> new HashSet<>()).add(Integer.parseInt(parts[1]));
            }
        }
        return read;
    }

    private void answer(String replicas, PrintStream out) throws ReflectiveOperationException {
        Object assignor = made("StickyTaskAssignor");
        Object settings = isSince44()
            ? made("AssignmentConfigsImpl", Integer.parseInt(replicas), List.of()) : Map.of("num.standby.replicas", replicas);
        Method assign = Arrays.stream(assignor.getClass().getMethods())
            .filter(method -> method.getName().equals("assign") && !method.isBridge()).findFirst().orElseThrow();
        Class<?> describer = assign.getParameterTypes()[1];
        Object described = Proxy.newProxyInstance(describer.getClassLoader(), new Class<?>[] {describer}, (self, method, given) ->
            switch (method.getName()) {
                case "subtopologies" -> List.copyOf(tasks.keySet());
                case "maxNumInputPartitions" -> tasks.get(given[0]);
                case "isStateful" -> stateful.contains(given[0]);
                default -> throw new IllegalArgumentException(method.getName());
            });
        Object assigned = assign.invoke(assignor, made("GroupSpecImpl", members, settings), described);
        for (Map.Entry<?, ?> each : new TreeMap<>((Map<?, ?>) call(assigned, "members")).entrySet()) {
            out.println("target " + each.getKey() + " " + text(call(each.getValue(), "activeTasks"))
                + " " + text(call(each.getValue(), "standbyTasks")));
        }
        out.println("end");
        out.flush();
    }

    private static Object call(Object target, String name) throws ReflectiveOperationException {
        return target.getClass().getMethod(name).invoke(target);
    }

    private static String text(Object tasks) {
        StringBuilder text = new StringBuilder();
        new TreeMap<>((Map<?, ?>) tasks).forEach((id, numbers) -> {
            for (Object number : new TreeSet<>((Set<?>) numbers)) {
                text.append(text.length() == 0 ? "" : ",").append(id).append('_').append(number);
            }
        });
        return text.length() == 0 ? "-" : text.toString();
    }
}
