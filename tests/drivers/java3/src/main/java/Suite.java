import com.datastax.driver.core.CCMTestsSupport;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.Modifier;
import java.net.JarURLConnection;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.regex.Pattern;
import org.testng.IMethodInstance;
import org.testng.IMethodInterceptor;
import org.testng.ITestResult;
import org.testng.TestListenerAdapter;
import org.testng.TestNG;

/**
 * Runs those tests of the driver's published jar that talk to a server: the classes that start clusters by CCM. Arguments: a pattern of class
 * names, a pattern of `Class.method` to leave out, and groups. Each outcome is a line: the word, and `Class.method`.
 */
public class Suite {
    private static final String PACKAGE = "com.datastax.driver.core.";
    // Tests print to the standard output too.
    private static final PrintStream OUT = System.out;

    public static void main(String[] arguments) throws Exception {
        Pattern wanted = Pattern.compile(arguments[0]);
        Pattern unwanted = Pattern.compile(arguments[1]);
        List<Class<?>> classes = new ArrayList<>();
        for (String name : names()) {
            if (!wanted.matcher(name.substring(PACKAGE.length())).matches()) continue;
            Class<?> found = Class.forName(name, false, Suite.class.getClassLoader());
            if (CCMTestsSupport.class.isAssignableFrom(found) && !Modifier.isAbstract(found.getModifiers())) classes.add(found);
        }
        for (Class<?> one : classes) run(one, unwanted, arguments[2]);
        OUT.println("all ran");
        System.exit(0);
    }

    /** One class at a time: where a cluster cannot be made for one, the others run all the same. */
    private static void run(Class<?> one, Pattern unwanted, String groups) {
        TestNG testng = new TestNG(false);
        testng.setVerbose(0);
        testng.setGroups(groups);
        testng.setTestClasses(new Class<?>[] {one});
        testng.addListener(new Outcomes());
        testng.addListener((IMethodInterceptor) (methods, context) -> {
            List<IMethodInstance> kept = new ArrayList<>(methods);
            kept.removeIf(m -> unwanted.matcher(name(one.getName(), m.getMethod().getMethodName())).matches());
            return kept;
        });
        testng.run();
    }

    private static List<String> names() throws IOException {
        JarURLConnection jar = (JarURLConnection) CCMTestsSupport.class.getResource("CCMTestsSupport.class").openConnection();
        List<String> names = new ArrayList<>();
        try (JarFile file = jar.getJarFile()) {
            for (JarEntry entry : Collections.list(file.entries())) {
                String name = entry.getName().replace('/', '.');
                if (name.startsWith(PACKAGE) && name.endsWith("Test.class")) names.add(name.substring(0, name.length() - ".class".length()));
            }
        }
        Collections.sort(names);
        return names;
    }

    private static String name(String className, String method) {
        return className.substring(PACKAGE.length()) + "." + method;
    }

    private static class Outcomes extends TestListenerAdapter {
        private void say(String outcome, ITestResult result) {
            String why = result.getThrowable() == null ? "" : " :: " + String.valueOf(result.getThrowable()).replace('\n', ' ');
            OUT.println("outcome " + outcome + " " + name(result.getTestClass().getName(), result.getName()) + why);
        }

        @Override
        public void onTestSuccess(ITestResult result) {
            say("passed", result);
        }

        @Override
        public void onTestFailure(ITestResult result) {
            say("failed", result);
        }

        @Override
        public void onTestSkipped(ITestResult result) {
            say("skipped", result);
        }

        @Override
        public void onConfigurationFailure(ITestResult result) {
            say("failed", result);
        }
    }
}
