package interop;

import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;

/** What an exception is called in a result: its class, and the code in it, without texts that differ from run to run. */
final class Failures {
    private Failures() { }

    interface Call {
        void run() throws Exception;
    }

    /** Runs what should fail. */
    static String of(Call call) {
        try {
            call.run();
        } catch (Throwable e) {
            return name(e);
        }
        return "none";
    }

    static String name(Throwable e) {
        if (e instanceof MQBrokerException broker) return "MQBrokerException " + broker.getResponseCode();
        if (e instanceof MQClientException client) {
            String text = String.valueOf(client.getErrorMessage());
            for (String known : new String[] {"No route info of this topic", "The broker[", "No route info"}) {
                if (text.contains(known)) return "MQClientException " + client.getResponseCode() + ": " + known;
            }
            if (client.getResponseCode() < 0 && client.getCause() != null) return "MQClientException of " + name(client.getCause());
            return "MQClientException " + client.getResponseCode();
        }
        return e.getClass().getSimpleName();
    }
}
