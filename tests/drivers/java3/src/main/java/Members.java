import com.datastax.driver.core.Cluster;
import com.datastax.driver.core.Host;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.stream.Collectors;

/** The nodes that the Java driver 3 knows and takes for up: Members HOST PORT. It prints them whenever it reads a line. */
public class Members {
    public static void main(String[] arguments) throws IOException {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        try (var cluster = Cluster.builder()
                .addContactPoint(arguments[0])
                .withPort(Integer.parseInt(arguments[1]))
                .build()) {
            cluster.connect();
            while (lines.readLine() != null) {
                System.out.println("known " + cluster.getMetadata().getAllHosts().stream()
                        .filter(Host::isUp)
                        .map(host -> host.getHostId() + "=" + host.getEndPoint().resolve().getAddress().getHostAddress())
                        .collect(Collectors.joining(" ")));
            }
        }
    }
}
