package interop;

import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The real client. What it sent and what it found can be compared by the exclusive or of the bodies' digests, which does
 * not depend on the order.
 */
final class Client {
    private final DefaultMQProducer producer = new DefaultMQProducer("interop-producer");
    private final String servers;
    private int sent; // so that no two bodies of a process are the same

    private Client(Options options) {
        servers = options.text("namesrv");
    }

    static void run(Options options) throws Exception {
        new Client(options).run();
    }

    private void run() throws Exception {
        producer.setNamesrvAddr(servers);
        producer.setSendMsgTimeout(10_000); // longer than a master waits for its slaves
        producer.start();
        Output.line(Output.map("event", "serving", "namesrv", servers));
        Input.serve((command, argument) -> switch (command) {
            case "send" -> send(Options.pairs(argument, "topic", "count", "size"));
            case "consume" -> consume(Options.pairs(argument, "topic", "count", "seconds"));
            default -> null;
        });
        producer.shutdown();
    }

    /** Sends one message after the other. Those that were not stored everywhere are in no digest. */
    private Map<String, Object> send(Map<String, String> given) throws Exception {
        String topic = given.get("topic"), failure = null;
        int count = Integer.parseInt(given.getOrDefault("count", "1")), size = Integer.parseInt(given.getOrDefault("size", "128"));
        Map<String, Object> statuses = new TreeMap<>();
        long[] latencies = new long[count];
        byte[] digest = new byte[32];
        for (int i = 0; i < count; i++) {
            byte[] body = new byte[size];
            new Random(++sent * 31L + ProcessHandle.current().pid()).nextBytes(body);
            long begun = System.nanoTime();
            String status;
            try {
                SendStatus answer = producer.send(new Message(topic, "interop", "key-" + sent, body)).getSendStatus();
                if (answer == SendStatus.SEND_OK) mix(digest, body);
                status = answer.name();
            } catch (Exception e) {
                status = e.getClass().getSimpleName();
                if (failure == null) failure = e.toString();
            }
            latencies[i] = System.nanoTime() - begun;
            statuses.merge(status, 1, (a, b) -> (int) a + (int) b);
        }
        Arrays.sort(latencies);
        return Output.map("event", "sent", "topic", topic, "status", statuses, "p50_us", Output.quantile(latencies, 0.5),
            "p99_us", Output.quantile(latencies, 0.99), "max_us", Output.quantile(latencies, 1), "first_failure", failure, "body_xor", HexFormat.of().formatHex(digest));
    }

    /**
     * Reads the topic from its beginning, until there are {@code count} messages or the {@code seconds} are over. With no
     * count it ends when all queues have been read.
     */
    @SuppressWarnings("deprecation") // the only consumer that reads what it is told to
    private Map<String, Object> consume(Map<String, String> given) throws Exception {
        String topic = given.get("topic"), failure = null;
        long count = Long.parseLong(given.getOrDefault("count", "0")), messages = 0;
        long end = System.nanoTime() + (long) (Double.parseDouble(given.getOrDefault("seconds", "30")) * 1e9);
        Map<String, Object> brokers = new TreeMap<>();
        byte[] digest = new byte[32];
        Map<MessageQueue, Long> offsets = new TreeMap<>();
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("interop-consumer-" + System.nanoTime());
        consumer.setNamesrvAddr(servers);
        consumer.start();
        boolean all = false;
        while (System.nanoTime() < end && (count == 0 ? !all : messages < count)) {
            all = true;
            try {
                for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) offsets.putIfAbsent(queue, 0L);
                for (Map.Entry<MessageQueue, Long> queue : offsets.entrySet()) {
                    PullResult pulled = consumer.pull(queue.getKey(), "*", queue.getValue(), 32);
                    if (pulled.getPullStatus() == PullStatus.FOUND) {
                        for (MessageExt message : pulled.getMsgFoundList()) {
                            messages++;
                            brokers.merge(message.getBrokerName(), 1, (a, b) -> (int) a + (int) b);
                            mix(digest, message.getBody());
                        }
                    }
                    all &= pulled.getNextBeginOffset() == queue.getValue();
                    queue.setValue(pulled.getNextBeginOffset());
                }
            } catch (Exception e) {
                all = false;
                if (failure == null) failure = e.toString();
            }
            Thread.sleep(10);
        }
        consumer.shutdown();
        return Output.map("event", "consumed", "topic", topic, "messages", messages, "brokers", brokers, "first_failure", failure,
            "body_xor", HexFormat.of().formatHex(digest));
    }

    private static void mix(byte[] digest, byte[] body) throws Exception {
        byte[] one = MessageDigest.getInstance("SHA-256").digest(body);
        for (int i = 0; i < digest.length; i++) digest[i] ^= one[i];
    }
}
