package interop;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers that ask: the lite one, and the old one. */
@SuppressWarnings("deprecation")
final class Pulling {
    private Pulling() { }

    static void add(Map<String, Clients.Scenario> all) {
        all.put("lite-subscribe", Pulling::subscribe);
        all.put("lite-assign", Pulling::assign);
        all.put("lite-time", Pulling::time);
        all.put("pull-queue", Pulling::pull);
        all.put("pull-blocking", Pulling::blocking);
        all.put("view-by-id", Pulling::view);
    }

    static DefaultLitePullConsumer lite(Place place, String group) {
        DefaultLitePullConsumer consumer = place.cluster.configure(new DefaultLitePullConsumer(group));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullThreadNums(2);
        consumer.setAutoCommitIntervalMillis(1000);
        place.atEnd(consumer::shutdown);
        return consumer;
    }

    /** Polls until there are so many messages; fewer if they do not come. */
    static List<MessageExt> poll(DefaultLitePullConsumer consumer, int count, int seconds) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        Place.within(seconds, () -> {
            found.addAll(consumer.poll(200));
            return found.size() >= count;
        });
        return found;
    }

    static boolean all(List<MessageExt> found, int from, int to) {
        Set<Integer> want = new TreeSet<>();
        for (int i = from; i < to; i++) want.add(i);
        return found.size() == to - from && new HashSet<>(Sent.numbers(found)).equals(want);
    }

    /** The broker says who has which queue; what was committed is not read again. */
    private static Map<String, Object> subscribe(Place place) throws Exception {
        place.createTopic(4);
        place.send(0, 20);
        DefaultLitePullConsumer consumer = lite(place, place.group);
        consumer.setAutoCommit(false);
        consumer.subscribe(place.topic, "*");
        consumer.start();
        List<MessageExt> found = poll(consumer, 20, Place.PATIENCE_SECONDS);
        consumer.commitSync();
        long committed = 0;
        for (MessageQueue queue : place.queues()) committed += consumer.committed(queue);
        consumer.shutdown();
        place.send(20, 30);
        DefaultLitePullConsumer again = lite(place, place.group);
        again.subscribe(place.topic, "*");
        again.start();
        return Output.map("all", all(found, 0, 20), "committed", committed, "then", all(poll(again, 10, Place.PATIENCE_SECONDS), 20, 30));
    }

    private interface Seek {
        void to(MessageQueue queue) throws Exception;
    }

    /**
     * Seeks, and polls what comes then. The client interrupts its pull when it seeks, and may lose the seek or bring what it pulled
     * before, with any broker: what is not as it should be is tried a few times.
     */
    private static boolean seek(DefaultLitePullConsumer consumer, List<MessageQueue> queues, Seek seek, int from, int to) throws Exception {
        for (int tries = 0; tries < 10; tries++) {
            try {
                for (MessageQueue queue : queues) seek.to(queue);
            } catch (MQClientException e) {
                continue;
            }
            if (all(poll(consumer, to - from, 6), from, to)) return true;
        }
        return false;
    }

    private static Map<String, Object> assign(Place place) throws Exception {
        place.createTopic(2);
        place.send(0, 20);
        DefaultLitePullConsumer consumer = lite(place, place.group);
        consumer.start();
        List<MessageQueue> queues = place.queues();
        consumer.assign(queues);
        return Output.map("from_0", all(poll(consumer, 20, Place.PATIENCE_SECONDS), 0, 20),
            "from_5", seek(consumer, queues, queue -> consumer.seek(queue, 5), 10, 20),
            "from_begin", seek(consumer, queues, consumer::seekToBegin, 0, 20),
            "from_9", seek(consumer, queues, queue -> consumer.seek(queue, 9), 18, 20),
            "from_end", fromEnd(place, consumer, queues));
    }

    private static boolean fromEnd(Place place, DefaultLitePullConsumer consumer, List<MessageQueue> queues) throws Exception {
        for (MessageQueue queue : queues) consumer.seekToEnd(queue);
        place.send(20, 24);
        return all(poll(consumer, 4, Place.PATIENCE_SECONDS), 20, 24);
    }

    private static Map<String, Object> time(Place place) throws Exception {
        place.createTopic(1);
        place.send(0, 10);
        Thread.sleep(300);
        long time = System.currentTimeMillis() - 100;
        place.send(10, 20);
        DefaultLitePullConsumer consumer = lite(place, place.group);
        consumer.start();
        List<MessageQueue> queues = place.queues();
        consumer.assign(queues);
        poll(consumer, 20, Place.PATIENCE_SECONDS);
        MessageQueue queue = queues.get(0);
        Map<String, Object> result = Output.map("by_time", consumer.offsetForTimestamp(queue, time), "by_zero", consumer.offsetForTimestamp(queue, 0L),
            "by_future", consumer.offsetForTimestamp(queue, System.currentTimeMillis() + 100_000));
        result.put("from_time", seek(consumer, queues, q -> consumer.seek(q, consumer.offsetForTimestamp(q, time)), 10, 20));
        return result;
    }

    /** What a pull by hand finds at each kind of offset, and what is known of a queue. */
    private static Map<String, Object> pull(Place place) throws Exception {
        place.createTopic(2);
        long before = System.currentTimeMillis() - 1000;
        place.send(0, 20);
        DefaultMQPullConsumer consumer = place.cluster.configure(new DefaultMQPullConsumer(place.group));
        place.atEnd(consumer::shutdown);
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(place.topic));
        queues.sort(null);
        MessageQueue queue = queues.get(0);
        Place.within(Place.PATIENCE_SECONDS, () -> consumer.maxOffset(queue) == 10); // a broker answers a send before the message is in its queue
        Map<String, Object> pulls = Output.map();
        for (long offset : new long[] {0, 3, 9, 10, 11, 500}) {
            PullResult result = consumer.pull(queue, "*", offset, 4);
            pulls.put(Long.toString(offset), Output.map("status", result.getPullStatus(), "next", result.getNextBeginOffset(), "min", result.getMinOffset(),
                "max", result.getMaxOffset(), "numbers", result.getMsgFoundList() == null ? List.of() : Sent.numbers(result.getMsgFoundList())));
        }
        PullResult none = consumer.pull(queue, "other", 0, 32);
        pulls.put("other tag", Output.map("status", none.getPullStatus(), "next", none.getNextBeginOffset()));
        long unknown = consumer.fetchConsumeOffset(queue, true);
        consumer.updateConsumeOffset(queue, 7);
        consumer.getOffsetStore().updateConsumeOffsetToBroker(queue, 7, false);
        return Output.map("pulls", pulls, "min", consumer.minOffset(queue), "max", consumer.maxOffset(queue), "earliest", consumer.earliestMsgStoreTime(queue) >= before,
            "by_time", consumer.searchOffset(queue, before), "unknown", unknown, "stored", consumer.fetchConsumeOffset(queue, true), "queues", queues.size(),
            "queue_beyond", Failures.of(() -> consumer.pull(new MessageQueue(place.topic, queue.getBrokerName(), 9), "*", 0, 4)),
            "topic_unknown", Failures.of(() -> consumer.fetchSubscribeMessageQueues(place.topic + "-none")));
    }

    /** A pull waits at the end of a queue, and ends as soon as there is a message. */
    private static Map<String, Object> blocking(Place place) throws Exception {
        place.createTopic(1);
        DefaultMQPullConsumer consumer = place.cluster.configure(new DefaultMQPullConsumer(place.group));
        place.atEnd(consumer::shutdown);
        consumer.start();
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(place.topic).iterator().next();
        Thread sender = new Thread(() -> {
            try {
                Thread.sleep(1000);
                place.send(0, 1);
            } catch (Exception e) {
                e.printStackTrace();
            }
        });
        sender.start();
        long begun = System.nanoTime();
        PullResult result = consumer.pullBlockIfNotFound(queue, "*", 0, 32);
        double seconds = (System.nanoTime() - begun) / 1e9;
        sender.join();
        return Output.map("status", result.getPullStatus(), "messages", result.getMsgFoundList() == null ? 0 : result.getMsgFoundList().size(),
            "waited", seconds > 0.9, "woken", seconds < 12); // not by the end of its 20 s
    }

    /** A message by the id that says where it lies, and by one where there is none. */
    private static Map<String, Object> view(Place place) throws Exception {
        place.createTopic(1);
        String id = place.producer().send(new Message(place.topic, "tag", "key-0", Place.body(0))).getOffsetMsgId();
        MessageExt found = place.cluster.admin().viewMessage(place.topic, id);
        String beyond = id.substring(0, 16) + "00000FFFFFFFFFFF";
        return Output.map("number", Place.number(found), "topic", found.getTopic().equals(place.topic), "tags", found.getTags(), "keys", found.getKeys(),
            "id", Ids.offset(found).equals(id), "queue", found.getQueueId(), "offset", found.getQueueOffset(),
            "beyond", Failures.of(() -> place.cluster.admin().viewMessage(place.topic, beyond)));
    }
}
