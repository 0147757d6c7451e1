import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.TransactionResult;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorResult;
import org.apache.kafka.coordinator.group.Group;
import org.apache.kafka.coordinator.group.GroupCoordinatorConfig;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.GroupCoordinatorShard;
import org.apache.kafka.coordinator.group.classic.ClassicGroup;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;

/**
 * Loads records into the group coordinator of the Kafka release on the class path and runs one cleanup. Arguments: settings of the
 * broker, name=value. Standard input, a line each:
 *
 *   case NOW_MS                                    a new, empty coordinator
 *   record OFFSET PRODUCER_ID EPOCH KEY VALUE      = and hexadecimal digits; - for null
 *   marker PRODUCER_ID EPOCH COMMIT|ABORT
 *   end                                            the load ends; a cleanup follows
 *   load                                           the load ends; requests follow
 *   request METHOD VERSION JSON                    of GroupCoordinatorShard, whose records are applied
 *
 * Standard output: case; refused OFFSET EXCEPTION (-1: at the end of the load); group ID TYPE STATE EPOCH MEMBERS (ID: = and hexadecimal
 * digits; EPOCH: of a modern group, or the generation; MEMBERS: their ids as an ID, with spaces); offset PRODUCER_ID GROUP TOPIC PARTITION OFFSET (-1: committed, else pending);
 * tombstone KEY; failed EXCEPTION (of the cleanup); answer ERROR JSON and record KEY VALUE (of a request). Signatures that differ between releases are called by reflection.
 */
public class ReplayRecords {
    private static final HexFormat HEX = HexFormat.of();
    private static final ClassLoader LOADER = ReplayRecords.class.getClassLoader();

    private final Object metadata;
    private final GroupCoordinatorShard shard;
    private final GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
    private long nextOffset = 0;

    ReplayRecords(Map<String, Object> settings, long nowMs) throws Exception {
        Map<Class<?>, Object> parts = new HashMap<>();
        Time time = stub(Time.class, Map.of("milliseconds", nowMs, "nanoseconds", nowMs * 1_000_000));
        AbstractConfig broker = new AbstractConfig(definition(), settings, false);
        List<Object> given = List.of(
            broker, new GroupCoordinatorConfig(broker), time, new GroupCoordinatorMetrics(), Optional.empty(),
            new TopicPartition("__consumer_offsets", 0), Map.of());
        given.forEach(part -> parts.put(part.getClass(), part));
        Constructor<?> constructor = GroupCoordinatorShard.Builder.class.getConstructors()[0];
        Object builder = constructor.newInstance(arguments(constructor.getParameterTypes(), parts));
        for (Method method : GroupCoordinatorShard.Builder.class.getMethods()) {
            if (method.getName().startsWith("with")) {
                method.invoke(builder, arguments(method.getParameterTypes(), parts));
            }
        }
        shard = ((GroupCoordinatorShard.Builder) builder).build();
        metadata = field(shard, "groupMetadataManager");
    }

    /** All settings of the coordinator; 4.0 declares them in several groups. */
    private static ConfigDef definition() throws Exception {
        ConfigDef all = new ConfigDef();
        for (Class<?> owner : List.of(GroupCoordinatorConfig.class, ShareGroupConfig.class)) {
            for (Field field : owner.getFields()) {
                if (field.getType() == ConfigDef.class && Modifier.isStatic(field.getModifiers())) {
                    ((ConfigDef) field.get(null)).configKeys().values().forEach(key -> {
                        if (!all.configKeys().containsKey(key.name)) {
                            all.define(key);
                        }
                    });
                }
            }
        }
        return all;
    }

    private static Object[] arguments(Class<?>[] types, Map<Class<?>, Object> parts) throws Exception {
        Object[] values = new Object[types.length];
        for (int i = 0; i < types.length; i++) {
            values[i] = argument(types[i], parts);
        }
        return values;
    }

    /** The part of that type: one we have, a stub of an interface, or a new one made of its own parts. */
    private static Object argument(Class<?> type, Map<Class<?>, Object> parts) throws Exception {
        for (Object part : parts.values()) {
            if (type.isInstance(part)) {
                return part;
            }
        }
        Object made;
        if (type.isInterface()) {
            made = stub(type, Map.of());
        } else {
            Constructor<?> constructor = Arrays.stream(type.getConstructors())
                .min((a, b) -> a.getParameterCount() - b.getParameterCount()).orElseThrow();
            made = constructor.newInstance(arguments(constructor.getParameterTypes(), parts));
        }
        parts.put(type, made);
        return made;
    }

    private static <T> T stub(Class<T> type, Map<String, Object> answers) {
        return type.cast(Proxy.newProxyInstance(LOADER, new Class<?>[] {type}, (self, method, given) -> {
            if (method.getName().equals("hashCode")) {
                return System.identityHashCode(self);
            }
            if (method.getReturnType() == boolean.class) {
                return false;
            }
            return answers.get(method.getName());
        }));
    }

    private void replay(String[] words) {
        long offset = Long.parseLong(words[1]);
        try {
            CoordinatorRecord record;
            try {
                record = serde.deserialize(bytes(words[4]), bytes(words[5]));
            } catch (RuntimeException e) {
                if (e.getClass().getSimpleName().equals("UnknownRecordTypeException")) {
                    return; // the loader skips these
                }
                throw e;
            }
            shard.replay(offset, Long.parseLong(words[2]), Short.parseShort(words[3]), record);
        } catch (RuntimeException e) {
            refused(offset, e);
        }
    }

    private static void refused(long offset, Throwable e) {
        String message = String.valueOf(e.getMessage()).replace('\n', ' ');
        System.out.println("refused " + offset + " " + e.getClass().getSimpleName() + " " + message);
    }

    private void load() throws Exception {
        Method onLoaded = Arrays.stream(GroupCoordinatorShard.class.getMethods())
            .filter(method -> method.getName().equals("onLoaded") && !method.isBridge()).findFirst().orElseThrow();
        Class<?> image = onLoaded.getParameterTypes()[0];
        try {
            onLoaded.invoke(shard, image.getField("EMPTY").get(null));
        } catch (InvocationTargetException e) {
            refused(-1, e.getCause());
        }
    }

    /** Hands a request, in Kafka's JSON, to the coordinator, and applies the records that it makes. */
    private void request(String name, short version, String json) throws Exception {
        Method handler = Arrays.stream(GroupCoordinatorShard.class.getMethods())
            .filter(method -> method.getName().equals(name) && method.getParameterCount() == 2).findFirst().orElseThrow();
        Class<?>[] types = handler.getParameterTypes();
        Object request = Class.forName(types[1].getName() + "JsonConverter").getMethod("read", JsonNode.class, short.class)
            .invoke(null, new ObjectMapper().readTree(json), version);
        Object context = stub(types[0], Map.of(
            "requestVersion", (int) version, "clientId", "client", "clientAddress", InetAddress.getLoopbackAddress()));
        CoordinatorResult<?, ?> result;
        try {
            result = (CoordinatorResult<?, ?>) handler.invoke(shard, context, request);
        } catch (InvocationTargetException e) {
            System.out.println("answer " + Errors.forException(e.getCause()) + " {}");
            return;
        }
        Object answer = result.response() instanceof Map.Entry<?, ?> entry ? entry.getKey() : result.response();
        if (answer instanceof Record) {
            answer = answer.getClass().getMethod("data").invoke(answer);
        }
        JsonNode shown = (JsonNode) Class.forName(answer.getClass().getName() + "JsonConverter")
            .getMethod("write", answer.getClass(), short.class).invoke(null, answer, version);
        System.out.println("answer NONE " + shown);
        for (Object one : result.records()) {
            CoordinatorRecord record = (CoordinatorRecord) one;
            byte[] value = serde.serializeValue(record);
            System.out.println("record " + HEX.formatHex(serde.serializeKey(record)) + " " + (value == null ? "-" : HEX.formatHex(value)));
            shard.replay(nextOffset++, -1, (short) -1, record);
        }
    }

    @SuppressWarnings("unchecked")
    private void end() throws Exception {
        load();
        for (Object groupId : new TreeSet<>((Collection<?>) call(metadata, "groupIds"))) {
            Group group = (Group) call(metadata, "group", groupId);
            boolean isClassic = group instanceof ClassicGroup;
            Object epoch = group.getClass().getMethod(isClassic ? "generationId" : "groupEpoch").invoke(group);
            Collection<?> members = isClassic ? ((ClassicGroup) group).allMemberIds()
                : ((Map<?, ?>) group.getClass().getMethod("members").invoke(group)).keySet();
            System.out.println("group =" + hex((String) groupId) + " " + group.type() + " " + group.stateAsString() + " " + epoch
                + " =" + hex(String.join(" ", new TreeSet<>((Collection<String>) members))));
        }
        Object offsets = field(shard, "offsetMetadataManager");
        printOffsets("offset -1", field(offsets, "offsets"));
        for (Map.Entry<?, ?> entry : ((Map<?, ?>) field(offsets, "pendingTransactionalOffsets")).entrySet()) {
            printOffsets("offset " + entry.getKey(), entry.getValue());
        }
        List<CoordinatorRecord> tombstones;
        try {
            tombstones = shard.cleanupGroupMetadata().records();
        } catch (RuntimeException e) {
            System.out.println("failed " + e.getClass().getSimpleName() + " " + e.getMessage());
            return;
        }
        for (CoordinatorRecord record : tombstones) {
            System.out.println("tombstone " + HEX.formatHex(serde.serializeKey(record)));
        }
    }

    private static void printOffsets(String start, Object offsets) throws Exception {
        for (Map.Entry<?, ?> group : ((Map<?, ?>) field(offsets, "offsetsByGroup")).entrySet()) {
            for (Map.Entry<?, ?> topic : ((Map<?, ?>) group.getValue()).entrySet()) {
                for (Map.Entry<?, ?> partition : ((Map<?, ?>) topic.getValue()).entrySet()) {
                    System.out.println(start + " =" + hex((String) group.getKey()) + " =" + hex((String) topic.getKey()) + " "
                        + partition.getKey() + " " + field(partition.getValue(), "committedOffset"));
                }
            }
        }
    }

    private static Object field(Object target, String name) throws Exception {
        Field field = target.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(target);
    }

    private static Object call(Object target, String name, Object... given) throws Exception {
        Class<?>[] types = Arrays.stream(given).map(Object::getClass).toArray(Class<?>[]::new);
        Method method = target.getClass().getDeclaredMethod(name, types);
        method.setAccessible(true);
        return method.invoke(target, given);
    }

    private static String hex(String text) {
        return HEX.formatHex(text.getBytes(StandardCharsets.UTF_8));
    }

    private static ByteBuffer bytes(String hex) {
        return hex.equals("-") ? null : ByteBuffer.wrap(HEX.parseHex(hex.substring(1)));
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        for (String setting : args) {
            settings.put(setting.substring(0, setting.indexOf('=')), setting.substring(setting.indexOf('=') + 1));
        }
        ReplayRecords coordinator = null;
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "case" -> {
                    System.out.println("case");
                    coordinator = new ReplayRecords(settings, Long.parseLong(words[1]));
                }
                case "record" -> coordinator.replay(words);
                case "marker" -> coordinator.shard.replayEndTransactionMarker(
                    Long.parseLong(words[1]), Short.parseShort(words[2]), TransactionResult.valueOf(words[3]));
                case "load" -> coordinator.load();
                case "request" -> coordinator.request(words[1], Short.parseShort(words[2]), line.split(" ", 4)[3]);
                case "end" -> coordinator.end();
                default -> throw new IllegalArgumentException(line);
            }
        }
    }
}
