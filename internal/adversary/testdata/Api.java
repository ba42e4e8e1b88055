import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.function.Function;

/** java Api.java PORT: an API with the operation POST /v1/guest-tokens. The answer names the readings that find it. */
public class Api {
    static final String OPERATION = "/v1/guest-tokens";

    public static void main(String[] args) throws Exception {
        Map<String, Function<URI, String>> readings = new LinkedHashMap<>();
        readings.put("URI.getRawPath", URI::getRawPath);
        readings.put("URI.getPath", URI::getPath);
        readings.put("URI.normalize", uri -> uri.normalize().getPath());
        readings.put("URI.getPath, normalised", uri -> java.nio.file.Path.of(uri.getPath()).normalize().toString());

        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 128);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.createContext("/", exchange -> {
            exchange.getRequestBody().readAllBytes();
            List<String> by = new ArrayList<>();
            readings.forEach((name, read) -> {
                try {
                    if (exchange.getRequestMethod().equals("POST") && OPERATION.equals(read.apply(exchange.getRequestURI()))) {
                        by.add(name);
                    }
                } catch (RuntimeException e) {
                    // no path: an API answers 400
                }
            });
            byte[] body = String.join("\n", by).getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(by.isEmpty() ? 404 : 201, body.length == 0 ? -1 : body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}
