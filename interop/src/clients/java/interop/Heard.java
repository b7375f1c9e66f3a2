package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.MessageExt;

/** What the members of a group heard, by member. */
final class Heard {
    private final Map<String, List<MessageExt>> all = new TreeMap<>();

    synchronized void add(String member, List<MessageExt> messages) {
        all.computeIfAbsent(member, m -> new ArrayList<>()).addAll(messages);
    }

    MessageListenerConcurrently as(String member) {
        return (List<MessageExt> messages, ConsumeConcurrentlyContext context) -> {
            add(member, messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    synchronized List<MessageExt> messages() {
        List<MessageExt> copy = new ArrayList<>();
        all.values().forEach(copy::addAll);
        return copy;
    }

    synchronized List<MessageExt> of(String member) {
        return new ArrayList<>(all.getOrDefault(member, List.of()));
    }

    synchronized Set<Integer> numbers() {
        return new TreeSet<>(Sent.numbers(messages()));
    }

    int count() {
        return messages().size();
    }

    synchronized void forget() {
        all.clear();
    }
}
