import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/** Reads a topic until its input ends. Its commits and its group carry what Kafka Streams writes into metadata and user data. */
public class StreamsApp {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("application.id", args[1]);
        settings.put("state.dir", args[3]);
        settings.put("commit.interval.ms", "100");
        settings.put("session.timeout.ms", "6000");
        settings.put("auto.offset.reset", "earliest");
        settings.put("default.key.serde", Serdes.ByteArray().getClass());
        settings.put("default.value.serde", Serdes.ByteArray().getClass());
        StreamsBuilder builder = new StreamsBuilder();
        builder.<byte[], byte[]>stream(args[2]).foreach((key, value) -> { });
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.start();
        System.in.read();
        streams.close(java.time.Duration.ofSeconds(5));
    }
}
