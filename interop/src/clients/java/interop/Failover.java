package interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What clients see when a master has been killed and only its slave is left. {@code slave-prepare} is run while the master is
 * there, the others afterwards, by the same name. What a real slave does not do, ours does not either.
 */
@SuppressWarnings("deprecation")
final class Failover {
    private static final int FIRST = 20, ALL = 60;

    /** What was prepared, by the topic's name and name servers. */
    private static final Map<String, Prepared> prepared = new ConcurrentHashMap<>();

    private record Prepared(DefaultMQPushConsumer running, Heard heard, DefaultMQProducer producer, List<MessageQueue> queues, String id) { }

    private Failover() { }

    static void add(Map<String, Clients.Scenario> all) {
        all.put("slave-prepare", Failover::prepare);
        all.put("slave-running", Failover::running);
        all.put("slave-push", Failover::push);
        all.put("slave-continue", Failover::goOn);
        all.put("slave-retry", Failover::retry);
        all.put("slave-orderly", Failover::orderly);
        all.put("slave-lite-subscribe", Failover::subscribe);
        all.put("slave-lite-assign", Failover::assign);
        all.put("slave-pull", Failover::pull);
        all.put("slave-send", Failover::send);
        all.put("slave-view", Failover::view);
    }

    private static Prepared of(Place place) {
        Prepared found = prepared.get(place.cluster.servers + " " + place.topic);
        if (found == null) throw new IllegalStateException("slave-prepare was not run for " + place.topic);
        return found;
    }

    /** The id of a message of what was prepared. */
    static String id(Place place) {
        return of(place).id;
    }

    /** A group that is running and has part of the messages, one that had them and is gone, a producer. */
    private static Map<String, Object> prepare(Place place) throws Exception {
        place.createTopic(4);
        place.send(0, FIRST);
        Heard heard = new Heard(), gone = new Heard();
        Place stays = new Place(place.cluster, place.topic); // what it opens does not end with this scenario
        DefaultMQPushConsumer running = Pushing.start(stays.push(place.group + "-running", "*"), heard.as("member"));
        DefaultMQPushConsumer leaves = Pushing.start(place.push(place.group + "-gone", "*"), gone.as("member"));
        boolean both = Place.until(() -> heard.count() >= FIRST && gone.count() >= FIRST
            && Pushing.stored(place, leaves) == FIRST && Pushing.stored(place, running) == FIRST);
        leaves.shutdown();
        running.suspend();
        DefaultMQProducer producer = place.cluster.configure(new DefaultMQProducer(place.group + "-producer"));
        producer.start();
        List<MessageQueue> queues = place.queues();
        String id = producer.send(new Message(place.topic, "tag", "key-" + FIRST, Place.body(FIRST)), queues.get(FIRST % queues.size())).getOffsetMsgId();
        // Pulls that wait already end with the next message: one for each queue, and the rest is left to read.
        // A queue without such a pull costs some seconds, and no more.
        place.send(FIRST + 1, FIRST + queues.size());
        Place.within(Place.SILENCE_SECONDS, () -> heard.count() >= FIRST + queues.size());
        place.send(FIRST + queues.size(), ALL);
        prepared.put(place.cluster.servers + " " + place.topic, new Prepared(running, heard, producer, queues, id));
        return Output.map("heard", both, "distinct", gone.numbers().size());
    }

    /** The group that was running goes on at the slave. */
    private static Map<String, Object> running(Place place) throws Exception {
        Prepared p = of(place);
        int before = p.heard.count();
        p.running.resume();
        Place.until(() -> p.heard.numbers().size() == ALL);
        Map<String, Object> result = Output.map("messages", p.heard.count(), "distinct", p.heard.numbers().size(), "some_from_slave", p.heard.count() > before);
        p.running.shutdown();
        return result;
    }

    /** A new group reads everything, stores its offsets, and when it comes back it does not read it again. */
    private static Map<String, Object> push(Place place) throws Exception {
        Heard first = new Heard(), again = new Heard();
        DefaultMQPushConsumer consumer = Pushing.start(place.push(place.group + "-new", "*"), first.as("member"));
        Place.until(() -> first.numbers().size() == ALL && Pushing.done(consumer, place.topic) == ALL);
        consumer.shutdown();
        Pushing.start(place.push(place.group + "-new", "*"), again.as("member"));
        Place.within(Place.SILENCE_SECONDS, () -> again.count() > 0);
        return Output.map("messages", first.count(), "distinct", first.numbers().size(), "again", again.count());
    }

    /** The group that stored its offsets at the master goes on where it was. */
    private static Map<String, Object> goOn(Place place) throws Exception {
        Heard heard = new Heard();
        DefaultMQPushConsumer back = Pushing.start(place.push(place.group + "-gone", "*"), heard.as("member"));
        Place.until(() -> heard.numbers().size() >= ALL - FIRST && Pushing.done(back, place.topic) == ALL);
        return Output.map("messages", heard.count(), "from", heard.numbers().isEmpty() ? -1 : heard.numbers().iterator().next());
    }

    /** A message that cannot be consumed stays in its client: there is nobody to send it back to. */
    private static Map<String, Object> retry(Place place) throws Exception {
        Map<Integer, AtomicInteger> times = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = place.push(place.group + "-retry", "*");
        Pushing.start(consumer, (messages, context) -> {
            ConsumeConcurrentlyStatus status = ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            for (MessageExt message : messages) {
                int time = times.computeIfAbsent(Place.number(message), n -> new AtomicInteger()).incrementAndGet();
                if (Place.number(message) == 0 && time < 2) status = ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            return status;
        });
        Place.until(() -> times.size() == ALL && times.get(0).get() >= 2);
        return Output.map("distinct", times.size(), "times_of_0", times.containsKey(0) ? times.get(0).get() : 0);
    }

    /** Queues are locked at a master only. */
    private static Map<String, Object> orderly(Place place) throws Exception {
        Heard heard = new Heard();
        Ordered.start(place.push(place.group + "-orderly", "*"), (messages, context) -> {
            heard.add("member", messages);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        Place.within(Place.SILENCE_SECONDS, () -> heard.count() > 0);
        return Output.map("messages", heard.count());
    }

    private static Map<String, Object> subscribe(Place place) throws Exception {
        DefaultLitePullConsumer consumer = Pulling.lite(place, place.group + "-lite");
        consumer.subscribe(place.topic, "*");
        consumer.start();
        List<MessageExt> found = Pulling.poll(consumer, ALL, Place.PATIENCE_SECONDS);
        return Output.map("all", Pulling.all(found, 0, ALL));
    }

    private static Map<String, Object> assign(Place place) throws Exception {
        DefaultLitePullConsumer consumer = Pulling.lite(place, place.group + "-assign");
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchMessageQueues(place.topic));
        consumer.assign(queues);
        List<MessageExt> found = Pulling.poll(consumer, ALL, Place.PATIENCE_SECONDS);
        return Output.map("queues", queues.size(), "all", Pulling.all(found, 0, ALL), "by_time", Failures.of(() -> consumer.offsetForTimestamp(queues.get(0), 0L)),
            "seek", Failures.of(() -> consumer.seek(queues.get(0), 5L)));
    }

    /** Pulls by hand, and what is known of a queue. */
    private static Map<String, Object> pull(Place place) throws Exception {
        DefaultMQPullConsumer consumer = place.cluster.configure(new DefaultMQPullConsumer(place.group + "-pull"));
        place.atEnd(consumer::shutdown);
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(place.topic));
        TreeSet<Integer> numbers = new TreeSet<>();
        Map<MessageQueue, Long> offsets = new HashMap<>();
        Place.until(() -> {
            for (MessageQueue queue : queues) {
                PullResult result = consumer.pull(queue, "*", offsets.getOrDefault(queue, 0L), 32);
                if (result.getPullStatus() == PullStatus.FOUND) numbers.addAll(Sent.numbers(result.getMsgFoundList()));
                offsets.put(queue, result.getNextBeginOffset());
            }
            return numbers.size() == ALL;
        });
        MessageQueue queue = queues.get(0);
        PullResult end = consumer.pull(queue, "*", 15, 32), beyond = consumer.pull(queue, "*", 500, 32);
        return Output.map("distinct", numbers.size(), "min", Failures.of(() -> consumer.minOffset(queue)), "max", Failures.of(() -> consumer.maxOffset(queue)),
            "by_time", Failures.of(() -> consumer.searchOffset(queue, 0)), "end", end.getPullStatus() + " " + end.getNextBeginOffset(), "beyond", beyond.getPullStatus() + " " + beyond.getNextBeginOffset());
    }

    /** Sends to a queue that was known, and to any. */
    private static Map<String, Object> send(Place place) throws Exception {
        Prepared p = of(place);
        Message message = new Message(place.topic, "tag", "key", Place.body(1000));
        DefaultMQProducer fresh = place.cluster.configure(new DefaultMQProducer(place.group + "-late"));
        place.atEnd(fresh::shutdown);
        fresh.start();
        Place.until(() -> Failures.of(() -> p.producer.send(message)).contains("route"));
        Map<String, Object> result = Output.map("known", Failures.of(() -> p.producer.send(message)), "queue", Failures.of(() -> p.producer.send(message, p.queues.get(0))),
            "fresh", Failures.of(() -> fresh.send(message)), "new_topic", Failures.of(() -> fresh.send(new Message(place.topic + "-new", Place.body(0)))));
        p.producer.shutdown();
        return result;
    }

    /** The id says where the message lies: at the address of the master. */
    private static Map<String, Object> view(Place place) throws Exception {
        return Output.map("by_id", Failures.of(() -> place.cluster.admin().viewMessage(place.topic, of(place).id)));
    }
}
