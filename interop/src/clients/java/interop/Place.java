package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Where a scenario runs: a cluster, and names that no other run has. What it opened ends with it. */
final class Place implements AutoCloseable {
    static final int PATIENCE_SECONDS = 90;
    /** How long nothing has to come where nothing may. */
    static final int SILENCE_SECONDS = 8;

    final Cluster cluster;
    final String topic, group;
    private final Deque<Runnable> ends = new ArrayDeque<>();

    Place(Cluster cluster, String name) {
        this.cluster = cluster;
        topic = name;
        group = name + "-group";
    }

    @Override
    public void close() {
        while (!ends.isEmpty()) ends.pop().run();
    }

    synchronized void atEnd(Runnable end) {
        ends.push(end);
    }

    DefaultMQProducer producer() throws Exception {
        return cluster.producer();
    }

    void createTopic(int queues) throws Exception {
        cluster.createTopic(new TopicConfig(topic, queues, queues, 6));
    }

    /** A push consumer that reads from the first offset, not yet started. */
    DefaultMQPushConsumer push(String group, String tags) throws Exception {
        DefaultMQPushConsumer consumer = cluster.configure(new DefaultMQPushConsumer(group));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        consumer.subscribe(topic, tags);
        atEnd(consumer::shutdown);
        return consumer;
    }

    static byte[] body(int number) {
        return ("body " + number).getBytes(StandardCharsets.UTF_8);
    }

    static int number(Message message) {
        return Integer.parseInt(new String(message.getBody(), StandardCharsets.UTF_8).substring(5));
    }

    /** Sends messages with the numbers in [from, to), to the queues in turn. */
    void send(int from, int to) throws Exception {
        List<MessageQueue> queues = queues();
        for (int i = from; i < to; i++) {
            SendStatus status = producer().send(new Message(topic, "tag", "key-" + i, body(i)), queues.get(i % queues.size())).getSendStatus();
            if (status != SendStatus.SEND_OK) throw new IllegalStateException("a send ended with " + status);
        }
    }

    List<MessageQueue> queues() throws Exception {
        List<MessageQueue> queues = new ArrayList<>(cluster.reader().fetchSubscribeMessageQueues(topic));
        queues.sort(null);
        return queues;
    }

    List<MessageExt> read(int count) throws Exception {
        return read(topic, count);
    }

    /** Reads a topic from its beginning: all there is, and until there are count messages. */
    @SuppressWarnings("deprecation")
    List<MessageExt> read(String topic, int count) throws Exception {
        DefaultMQPullConsumer reader = cluster.reader();
        List<MessageExt> found = new ArrayList<>();
        Map<MessageQueue, Long> offsets = new HashMap<>();
        until(() -> {
            boolean all = true;
            try {
                for (MessageQueue queue : reader.fetchSubscribeMessageQueues(topic)) {
                    long offset = offsets.computeIfAbsent(queue, q -> 0L);
                    PullResult pulled = reader.pull(queue, "*", offset, 32);
                    if (pulled.getPullStatus() == PullStatus.FOUND) {
                        found.addAll(pulled.getMsgFoundList());
                        all = false;
                    }
                    offsets.put(queue, pulled.getNextBeginOffset());
                }
            } catch (Exception e) {
                return false; // the topic has no route yet
            }
            return all && found.size() >= count;
        });
        return found;
    }

    /** Waits until it is so; false if it is not in time. */
    static boolean until(Callable<Boolean> so) throws Exception {
        return within(PATIENCE_SECONDS, so);
    }

    static boolean within(int seconds, Callable<Boolean> so) throws Exception {
        for (long end = System.nanoTime() + seconds * 1_000_000_000L; !so.call(); Thread.sleep(20)) {
            if (System.nanoTime() > end) return false;
        }
        return true;
    }
}
