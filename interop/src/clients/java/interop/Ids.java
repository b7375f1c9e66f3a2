package interop;

import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** The ids of a message that say where it lies. */
final class Ids {
    private Ids() { }

    /** The store's host and the offset in its log. The client shows its own id as the message's, so it is made again here. */
    static String offset(MessageExt message) {
        java.nio.ByteBuffer space = java.nio.ByteBuffer.allocate(16);
        return MessageDecoder.createMessageId(space, message.getStoreHostBytes(), message.getCommitLogOffset());
    }
}
