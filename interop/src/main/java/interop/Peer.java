package interop;

import java.util.Map;

/** A connection of a master's HA service, with the offset that its slave acknowledged (-1: none yet). */
record Peer(String address, long acked, boolean inSync) {
    Map<String, Object> toMap() {
        return Output.map("address", address, "acked_offset", acked, "in_sync", inSync);
    }
}
