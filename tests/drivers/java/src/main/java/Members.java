import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.metadata.Node;
import com.datastax.oss.driver.api.core.metadata.NodeState;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.util.stream.Collectors;

/** The nodes that the Java driver knows and takes for up: Members HOST PORT. It prints them whenever it reads a line. */
public class Members {
    public static void main(String[] arguments) throws IOException {
        var configuration = DriverConfigLoader.programmaticBuilder()
                .withString(DefaultDriverOption.LOAD_BALANCING_POLICY_CLASS, "DcInferringLoadBalancingPolicy")
                .build();
        var lines = new BufferedReader(new InputStreamReader(System.in));
        try (var session = CqlSession.builder()
                .addContactPoint(new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1])))
                .withConfigLoader(configuration)
                .build()) {
            while (lines.readLine() != null) {
                System.out.println("known " + session.getMetadata().getNodes().values().stream()
                        .filter(node -> node.getState() == NodeState.UP)
                        .map(Members::shown)
                        .collect(Collectors.joining(" ")));
            }
        }
    }

    private static String shown(Node node) {
        var address = (InetSocketAddress) node.getEndPoint().resolve();
        return node.getHostId() + "=" + address.getAddress().getHostAddress();
    }
}
