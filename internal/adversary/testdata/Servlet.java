import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.http.UriCompliance;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * java -cp JARS Servlet.java PORT PORT: a servlet at POST /v1/guest-tokens in Jetty. The first port refuses ambiguous
 * targets, as Jetty does now; the second takes them, as it did for long.
 */
public class Servlet {
    public static void main(String[] args) throws Exception {
        Server server = new Server();
        UriCompliance[] compliances = {UriCompliance.DEFAULT, UriCompliance.UNSAFE};
        for (int i = 0; i < compliances.length; i++) {
            HttpConfiguration configuration = new HttpConfiguration();
            configuration.setUriCompliance(compliances[i]);
            ServerConnector connector = new ServerConnector(server, new HttpConnectionFactory(configuration));
            connector.setHost("127.0.0.1");
            connector.setPort(Integer.parseInt(args[i]));
            server.addConnector(connector);
        }
        ServletContextHandler context = new ServletContextHandler("/");
        context.getServletHandler().setDecodeAmbiguousURIs(true);
        context.addServlet(new ServletHolder(new HttpServlet() {
            @Override
            protected void doPost(HttpServletRequest request, HttpServletResponse response) throws IOException {
                response.setStatus(201);
                response.getWriter().write("servlet");
            }
        }), "/v1/guest-tokens");
        server.setHandler(context);
        server.start();
        server.join();
    }
}
