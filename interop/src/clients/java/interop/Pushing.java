package interop;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers that take messages in any order. */
@SuppressWarnings("deprecation") // the push consumer has its time as a text in one version only
final class Pushing {
    private Pushing() { }

    static void add(Map<String, Clients.Scenario> all) {
        all.put("push-group", Pushing::group);
        all.put("push-broadcast", Pushing::broadcast);
        all.put("push-tags", Pushing::tags);
        all.put("push-retry", Pushing::retry);
        all.put("push-continue", Pushing::goOn);
        all.put("push-last", Pushing::last);
        all.put("push-time", Pushing::time);
    }

    static DefaultMQPushConsumer start(DefaultMQPushConsumer consumer, MessageListenerConcurrently listener) throws Exception {
        consumer.registerMessageListener(listener);
        consumer.start();
        return consumer;
    }

    /** The queues that a member has, retries not counted. */
    static int queues(DefaultMQPushConsumer consumer, String topic) {
        return (int) consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(topic)).count();
    }

    /** The sum of the offsets that the broker has of a consumer: they follow what was consumed within a second. */
    static long stored(Place place, DefaultMQPushConsumer consumer) throws Exception {
        long sum = 0;
        for (MessageQueue queue : place.queues()) {
            sum += consumer.getDefaultMQPushConsumerImpl().getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_STORE);
        }
        return sum;
    }

    /**
     * The sum of the offsets that a consumer will store when it ends. What its listener has heard is counted there only when the
     * listener has returned: one that ends at once would leave its last messages to its successor.
     */
    static long done(DefaultMQPushConsumer consumer, String topic) {
        long sum = 0;
        for (MessageQueue queue : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()) {
            if (queue.getTopic().equals(topic)) sum += consumer.getDefaultMQPushConsumerImpl().getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_MEMORY);
        }
        return sum;
    }

    /** Two members share the queues as soon as both are there, and one takes over all when the other leaves. */
    private static Map<String, Object> group(Place place) throws Exception {
        place.createTopic(4);
        Heard heard = new Heard();
        DefaultMQPushConsumer first = start(place.push(place.group, "*"), heard.as("first"));
        boolean alone = Place.until(() -> queues(first, place.topic) == 4);
        DefaultMQPushConsumer second = start(place.push(place.group, "*"), heard.as("second"));
        // Without a word from the broker the first would not know for up to 20 s.
        boolean joined = Place.within(15, () -> queues(first, place.topic) == 2 && queues(second, place.topic) == 2);
        place.send(0, 40);
        Place.until(() -> heard.numbers().size() == 40);
        Map<String, Object> result = Output.map("alone_has_all", alone, "joined_in_15_s", joined, "messages", heard.count(), "distinct", heard.numbers().size(),
            "first", heard.of("first").size(), "second", heard.of("second").size());
        Place.until(() -> done(first, place.topic) + done(second, place.topic) == 40);
        second.shutdown();
        boolean left = Place.within(15, () -> queues(first, place.topic) == 4);
        heard.forget();
        place.send(40, 60);
        Place.until(() -> heard.numbers().size() == 20);
        result.putAll(Output.map("left_in_15_s", left, "messages_then", heard.count(), "first_then", heard.of("first").size()));
        return result;
    }

    private static Map<String, Object> broadcast(Place place) throws Exception {
        place.createTopic(4);
        Heard heard = new Heard();
        for (String member : new String[] {"first", "second"}) {
            DefaultMQPushConsumer consumer = place.push(place.group, "*");
            // Its class is in another package in each version.
            consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
            start(consumer, heard.as(member));
        }
        place.send(0, 20);
        Place.until(() -> heard.count() == 40);
        return Output.map("messages", heard.count(), "distinct", heard.numbers().size(), "first", heard.of("first").size(), "second", heard.of("second").size());
    }

    /** Three subscriptions of one topic, one of them by two tags of one hash code each. */
    private static Map<String, Object> tags(Place place) throws Exception {
        place.createTopic(2);
        String[] tags = {"a", "b", "c", "Aa", "BB"}; // the last two have one hash code
        for (int i = 0; i < 25; i++) place.producer().send(new Message(place.topic, tags[i % 5], "k", Place.body(i)));
        Map<String, Object> result = Output.map();
        for (String subscription : new String[] {"a || b", "Aa", "none", "*"}) {
            Heard heard = new Heard();
            start(place.push(place.group + Math.abs(subscription.hashCode()), subscription), heard.as("member"));
            int want = switch (subscription) {
                case "*" -> 25;
                case "none" -> 0;
                case "Aa" -> 5;
                default -> 10;
            };
            Place.until(() -> heard.count() >= want);
            if (want == 0) Place.within(Place.SILENCE_SECONDS, () -> heard.count() > 0);
            Map<String, Integer> counts = new TreeMap<>();
            for (MessageExt message : heard.messages()) counts.merge(message.getTags(), 1, Integer::sum);
            result.put(subscription, counts);
        }
        return result;
    }

    /** A message that nobody can consume comes three times, and is in the dead-letter topic then. */
    private static Map<String, Object> retry(Place place) throws Exception {
        place.createTopic(1);
        Map<Integer, List<Integer>> times = new ConcurrentHashMap<>(); // reconsume times seen by message
        Map<String, Boolean> same = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = place.push(place.group, "*");
        consumer.setMaxReconsumeTimes(2);
        start(consumer, (messages, context) -> {
            for (MessageExt message : messages) {
                times.computeIfAbsent(Place.number(message), n -> new java.util.concurrent.CopyOnWriteArrayList<>()).add(message.getReconsumeTimes());
                same.merge("topic", message.getTopic().equals(place.topic), Boolean::logicalAnd);
                same.merge("tags", "tag".equals(message.getTags()), Boolean::logicalAnd);
                same.merge("keys", message.getKeys().startsWith("key-"), Boolean::logicalAnd);
                if (message.getReconsumeTimes() > 0) same.merge("origin", message.getProperty("ORIGIN_MESSAGE_ID") != null, Boolean::logicalAnd);
            }
            context.setDelayLevelWhenNextConsume(1); // 1 s, where the broker delays
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        place.send(0, 3);
        List<MessageExt> dead = place.read("%DLQ%" + place.group, 3);
        Map<String, Object> seen = new TreeMap<>();
        times.forEach((number, all) -> seen.put("" + number, all.stream().sorted().toList()));
        return Output.map("times", seen, "same", new TreeMap<>(same), "dead", new java.util.TreeSet<>(Sent.numbers(dead)), "dead_messages", dead.size(),
            "dead_times", dead.stream().map(MessageExt::getReconsumeTimes).distinct().sorted().toList(),
            "dead_topic", dead.stream().map(m -> place.topic.equals(m.getProperty("RETRY_TOPIC"))).distinct().toList());
    }

    /** A group that comes back goes on where it stopped. */
    private static Map<String, Object> goOn(Place place) throws Exception {
        place.createTopic(4);
        place.send(0, 20);
        Heard before = new Heard(), after = new Heard();
        DefaultMQPushConsumer first = start(place.push(place.group, "*"), before.as("member"));
        Place.until(() -> before.count() >= 20 && stored(place, first) == 20);
        first.shutdown();
        place.send(20, 40);
        start(place.push(place.group, "*"), after.as("member"));
        Place.until(() -> after.numbers().size() >= 20);
        return Output.map("before", before.count(), "after", after.count(), "first_after", after.numbers().iterator().next());
    }

    /**
     * A new group that wants to begin at the end. Of a topic whose first message is in memory still it gets everything: the
     * broker tells it to begin at 0.
     */
    private static Map<String, Object> last(Place place) throws Exception {
        place.createTopic(4);
        place.send(0, 20);
        Heard heard = new Heard();
        DefaultMQPushConsumer consumer = place.push(place.group, "*");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        start(consumer, heard.as("member"));
        Place.until(() -> queues(consumer, place.topic) == 4);
        place.send(20, 40);
        return all(heard);
    }

    /** A new group that wants to begin at a time, to the same effect. */
    private static Map<String, Object> time(Place place) throws Exception {
        place.createTopic(4);
        place.send(0, 20);
        Thread.sleep(2100);
        long time = System.currentTimeMillis();
        Thread.sleep(1100); // the text has whole seconds
        place.send(20, 40);
        Heard heard = new Heard();
        DefaultMQPushConsumer consumer = place.push(place.group, "*");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
        consumer.setConsumeTimestamp(UtilAll.timeMillisToHumanString3(time));
        start(consumer, heard.as("member"));
        return all(heard);
    }

    private static Map<String, Object> all(Heard heard) throws Exception {
        Place.until(() -> heard.numbers().size() == 40);
        return Output.map("messages", heard.count(), "distinct", heard.numbers().size());
    }
}
