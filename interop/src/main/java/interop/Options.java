package interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Command line options: {@code --name value}, {@code --name}; a repeated one keeps all its values. */
final class Options {
    private final Map<String, List<String>> values = new HashMap<>();

    Options(String[] args, int from) {
        for (int i = from; i < args.length; i++) {
            if (!args[i].startsWith("--")) throw new IllegalArgumentException("unexpected " + args[i]);
            String name = args[i].substring(2), value = "true";
            if (i + 1 < args.length && !args[i + 1].startsWith("--")) value = args[++i];
            values.computeIfAbsent(name, x -> new ArrayList<>()).add(value);
        }
    }

    boolean has(String name) {
        return values.containsKey(name);
    }

    List<String> all(String name) {
        return values.getOrDefault(name, List.of());
    }

    String text(String name, String otherwise) {
        List<String> all = all(name);
        return all.isEmpty() ? otherwise : all.get(all.size() - 1);
    }

    String text(String name) {
        if (!has(name)) throw new IllegalArgumentException("--" + name + " is missing");
        return text(name, null);
    }

    long number(String name, long otherwise) {
        return has(name) ? Long.parseLong(text(name)) : otherwise;
    }

    int integer(String name, int otherwise) {
        return Math.toIntExact(number(name, otherwise));
    }

    /** Reads {@code name=value,...}, the form in which commands and settings come; nothing but known names. */
    static Map<String, String> pairs(String specification, String... known) {
        Map<String, String> pairs = new HashMap<>();
        if (specification.isEmpty()) return pairs;
        for (String pair : specification.split(",")) {
            String[] sides = pair.split("=", 2);
            if (sides.length < 2) throw new IllegalArgumentException(pair + ": want name=value");
            if (!List.of(known).contains(sides[0])) throw new IllegalArgumentException(sides[0] + " is none of " + String.join(", ", known));
            pairs.put(sides[0], sides[1]);
        }
        return pairs;
    }
}
