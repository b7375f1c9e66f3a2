package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Push consumers that take a queue's messages in their order, by a lock on the queue. */
final class Ordered {
    private Ordered() { }

    static void add(Map<String, Clients.Scenario> all) {
        all.put("orderly-group", Ordered::group);
        all.put("orderly-suspend", Ordered::suspend);
        all.put("orderly-dead", Ordered::dead);
    }

    static DefaultMQPushConsumer start(DefaultMQPushConsumer consumer, MessageListenerOrderly listener) throws Exception {
        consumer.registerMessageListener(listener);
        consumer.setSuspendCurrentQueueTimeMillis(200);
        consumer.start();
        return consumer;
    }

    /** Of each queue: what was heard of it, in order of hearing. */
    static final class Queues {
        final Map<Integer, List<Integer>> heard = new TreeMap<>();
        private final Map<Integer, String> busy = new ConcurrentHashMap<>();
        private final Set<Integer> shared = new TreeSet<>();
        final Map<String, Integer> members = new TreeMap<>();

        /** Consumes for a member; a queue in which two are at once is noted. */
        void consume(String member, List<MessageExt> messages) {
            for (MessageExt message : messages) {
                String other = busy.put(message.getQueueId(), member);
                synchronized (this) {
                    if (other != null) shared.add(message.getQueueId());
                    heard.computeIfAbsent(message.getQueueId(), q -> new ArrayList<>()).add(Place.number(message));
                    members.merge(member, 1, Integer::sum);
                }
                try {
                    Thread.sleep(2);
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
                busy.remove(message.getQueueId());
            }
        }

        synchronized int count() {
            return heard.values().stream().mapToInt(List::size).sum();
        }

        synchronized Map<String, Object> result() {
            boolean ordered = heard.values().stream().allMatch(queue -> queue.equals(queue.stream().distinct().sorted().toList()));
            return Output.map("messages", heard.values().stream().mapToInt(List::size).sum(), "in_order", ordered, "shared", new TreeSet<>(shared),
                "queues", heard.size(), "members", members.size());
        }
    }

    private static void send(Place place, int from, int to) throws Exception {
        for (int i = from; i < to; i++) {
            place.producer().send(new Message(place.topic, "tag", "key-" + i, Place.body(i)), (queues, m, key) -> queues.get((int) key % queues.size()), i % 4);
        }
    }

    /** A queue is one member's at a time, its messages come in order, also while a member joins. */
    private static Map<String, Object> group(Place place) throws Exception {
        place.createTopic(4);
        Queues queues = new Queues();
        MessageListenerOrderly[] listeners = new MessageListenerOrderly[2];
        for (int i = 0; i < 2; i++) {
            String member = "member " + i;
            listeners[i] = (messages, context) -> {
                queues.consume(member, messages);
                return ConsumeOrderlyStatus.SUCCESS;
            };
        }
        DefaultMQPushConsumer first = start(place.push(place.group, "*"), listeners[0]);
        send(place, 0, 40);
        Place.until(() -> queues.count() >= 20);
        DefaultMQPushConsumer second = start(place.push(place.group, "*"), listeners[1]);
        Place.until(() -> Pushing.queues(first, place.topic) == 2 && Pushing.queues(second, place.topic) == 2);
        send(place, 40, 80);
        Place.until(() -> queues.count() >= 80);
        return queues.result();
    }

    /** A queue that has to wait goes on with the same message, and no later one overtakes it. */
    private static Map<String, Object> suspend(Place place) throws Exception {
        place.createTopic(2);
        Queues queues = new Queues();
        AtomicInteger suspended = new AtomicInteger();
        Map<Integer, Integer> tries = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = place.push(place.group, "*");
        consumer.setConsumeMessageBatchMaxSize(1);
        start(consumer, (messages, context) -> {
            int number = Place.number(messages.get(0));
            if (number % 5 == 0 && tries.merge(number, 1, Integer::sum) < 3) {
                suspended.incrementAndGet();
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            queues.consume("member", messages);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        send(place, 0, 20);
        Place.until(() -> queues.count() >= 20);
        Map<String, Object> result = queues.result();
        result.put("suspended", suspended.get());
        return result;
    }

    /** After so many times the message goes to the dead-letter topic by way of the retry topic, and the queue goes on. */
    private static Map<String, Object> dead(Place place) throws Exception {
        place.createTopic(1);
        Queues queues = new Queues();
        AtomicInteger tries = new AtomicInteger();
        DefaultMQPushConsumer consumer = place.push(place.group, "*");
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.setMaxReconsumeTimes(2);
        start(consumer, (messages, context) -> {
            if (Place.number(messages.get(0)) == 1) {
                tries.incrementAndGet();
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            queues.consume("member", messages);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        send(place, 0, 4);
        Place.until(() -> queues.count() >= 3);
        Map<String, Object> result = queues.result();
        result.put("tries", tries.get());
        result.put("dead", Sent.numbers(place.read("%DLQ%" + place.group, 1)));
        return result;
    }
}
