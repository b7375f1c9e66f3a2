package interop;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** mqadmin as its script starts it, with what it prints. One command at a time: it prints to the process' standard output. */
final class Admin {
    private Admin() { }

    static {
        try { // 4.x does nothing without its logging's configuration
            Path home = Files.createTempDirectory("interop-mqadmin");
            Path conf = Files.createDirectory(home.resolve("conf"));
            Files.writeString(conf.resolve("logback_tools.xml"), "<configuration/>");
            System.setProperty("rocketmq.home.dir", home.toString());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static synchronized Map<String, Object> run(String servers, String arguments) {
        List<String> words = new ArrayList<>(List.of(arguments.split(" ")));
        words.addAll(List.of("-n", servers));
        ByteArrayOutputStream said = new ByteArrayOutputStream(), complained = new ByteArrayOutputStream();
        PrintStream out = System.out, err = System.err;
        System.setOut(new PrintStream(said, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
        try {
            MQAdminStartup.main0(words.toArray(new String[0]), null);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return Output.map("text", said.toString(StandardCharsets.UTF_8), "complaint", complained.toString(StandardCharsets.UTF_8));
    }
}
