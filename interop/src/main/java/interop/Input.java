package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;

/** Standard input: a command a line, answered by a line. */
final class Input {
    private Input() { }

    /** What one side understands; null for a command that it does not know. */
    interface Commands {
        Map<String, Object> answer(String name, String argument) throws Exception;
    }

    /** Returns at {@code quit} and at the end of input. */
    static void serve(Commands commands) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null && !line.equals("quit"); ) {
            String[] words = line.split(" ", 2);
            Map<String, Object> answer = commands.answer(words[0], words.length > 1 ? words[1] : "");
            Output.line(answer != null ? answer : Output.map("event", "unknown", "command", line));
        }
    }
}
