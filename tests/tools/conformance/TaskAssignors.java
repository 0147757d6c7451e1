import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentMemberSpec;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.assignor.TopologyDescriber;

/** Answers groups, read as lines of text, with the assignments of Kafka's assignor of streams groups. See task_assignors.py. */
public final class TaskAssignors implements TopologyDescriber {
    private final Map<String, Integer> tasks = new TreeMap<>();
    private final Set<String> stateful = new HashSet<>();
    private final Map<String, AssignmentMemberSpec> members = new HashMap<>();

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        TaskAssignors group = new TaskAssignors();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split(" ");
            switch (fields[0]) {
                case "subtopology" -> group.addSubtopology(fields[1], Integer.parseInt(fields[2]), fields[3].equals("stateful"));
                case "member" -> group.addMember(fields[1], fields[2], fields[3], fields[4]);
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

    private void addMember(String id, String processId, String active, String standby) {
        members.put(id, new AssignmentMemberSpec(
            Optional.empty(), Optional.empty(), tasksOf(active), tasksOf(standby), Map.of(), processId, Map.of(), Map.of(), Map.of()));
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

    private void answer(String replicas, PrintStream out) {
        Map<String, String> settings = Map.of("num.standby.replicas", replicas);
        Map<String, MemberAssignment> assigned = new TreeMap<>(
            new StickyTaskAssignor().assign(new GroupSpecImpl(members, settings), this).members());
        assigned.forEach((id, of) -> out.println("target " + id + " " + text(of.activeTasks()) + " " + text(of.standbyTasks())));
        out.println("end");
        out.flush();
    }

    private static String text(Map<String, Set<Integer>> tasks) {
        StringBuilder text = new StringBuilder();
        new TreeMap<>(tasks).forEach((id, numbers) -> {
            for (int number : new TreeSet<>(numbers)) {
                text.append(text.length() == 0 ? "" : ",").append(id).append('_').append(number);
            }
        });
        return text.length() == 0 ? "-" : text.toString();
    }

    @Override
    public List<String> subtopologies() {
        return List.copyOf(tasks.keySet());
    }

    @Override
    public int maxNumInputPartitions(String subtopologyId) {
        return tasks.get(subtopologyId);
    }

    @Override
    public boolean isStateful(String subtopologyId) {
        return stateful.contains(subtopologyId);
    }
}
