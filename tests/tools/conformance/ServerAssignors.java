import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMemberValue;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Answers groups with the broker's own assignors; server_assignors.py starts it and says what the lines on stdin and stdout are.
 *
 * <p>Targets become Assignments by Kafka's Assignment.fromRecord, subscriptions a HashSet of names, as the coordinator keeps them.
 */
public final class ServerAssignors {
    private final Map<String, Uuid> topicIds = new HashMap<>();
    private final Map<Uuid, Integer> partitionCounts = new HashMap<>();
    private final Map<String, Set<String>> subscriptions = new LinkedHashMap<>();
    private final Map<String, String> instanceIds = new HashMap<>();
    private final Map<String, ConsumerGroupTargetAssignmentMemberValue> targets = new HashMap<>();

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        ServerAssignors group = new ServerAssignors();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split(" ");
            switch (fields[0]) {
                case "topic" -> group.addTopic(fields[1], Uuid.fromString(fields[2]), Integer.parseInt(fields[3]));
                case "member" -> group.addMember(fields[1], fields[2], fields[3]);
                case "target" -> group.addTarget(fields[1], fields[2], fields[3]);
                default -> {
                    group.answer(assignorOf(fields[1]), out);
                    group = new ServerAssignors();
                }
            }
        }
    }

    private static PartitionAssignor assignorOf(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "simple" -> new SimpleAssignor();
            default -> new UniformAssignor();
        };
    }

    private void addTopic(String name, Uuid id, int partitions) {
        topicIds.put(name, id);
        partitionCounts.put(id, partitions);
    }

    private void addMember(String memberId, String instanceId, String topics) {
        subscriptions.put(memberId, new HashSet<>(Arrays.asList(topics.split(","))));
        targets.put(memberId, new ConsumerGroupTargetAssignmentMemberValue());
        if (!instanceId.equals("-")) {
            instanceIds.put(memberId, instanceId);
        }
    }

    private void addTarget(String memberId, String topic, String partitions) {
        targets.get(memberId).topicPartitions().add(new ConsumerGroupTargetAssignmentMemberValue.TopicPartition()
            .setTopicId(topicIds.get(topic))
            .setPartitions(Arrays.stream(partitions.split(",")).map(Integer::valueOf).toList()));
    }

    private void answer(PartitionAssignor assignor, PrintStream out) {
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        subscriptions.forEach((memberId, names) -> {
            Set<Uuid> ids = new LinkedHashSet<>();
            names.forEach(name -> ids.add(topicIds.get(name)));
            Assignment target = Assignment.fromRecord(targets.get(memberId));
            target.partitions().forEach((id, partitions) -> partitions.forEach(partition ->
                owners.computeIfAbsent(id, unused -> new HashMap<>()).put(partition, memberId)));
            members.put(memberId, new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), Optional.ofNullable(instanceIds.get(memberId)), ids, target));
        });
        boolean isHomogeneous = new HashSet<>(subscriptions.values()).size() == 1;
        GroupSpecImpl group = new GroupSpecImpl(
            Collections.unmodifiableMap(members),
            isHomogeneous ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS,
            owners);
        Map<Uuid, String> names = new HashMap<>();
        topicIds.forEach((name, id) -> names.put(id, name));
        assignor.assign(group, new Topics()).members().forEach((memberId, assignment) ->
            assignment.partitions().forEach((id, partitions) -> {
                List<String> numbers = new ArrayList<>();
                partitions.forEach(partition -> numbers.add(partition.toString()));
                if (!numbers.isEmpty()) {
                    out.println("target " + memberId + " " + names.get(id) + " " + String.join(",", numbers));
                }
            }));
        out.println("end");
        out.flush();
    }

    private final class Topics implements SubscribedTopicDescriber {
        @Override
        public int numPartitions(Uuid topicId) {
            return partitionCounts.getOrDefault(topicId, -1);
        }

        @Override
        public Set<String> racksForPartition(Uuid topicId, int partition) {
            return Set.of();
        }
    }
}
