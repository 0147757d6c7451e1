import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/** Arguments: a file of expressions and a file of texts, in base64, one a line. Prints for each expression which texts it matches. */
public class Re2jMatches {
    public static void main(String[] args) throws Exception {
        List<String> texts = lines(args[1]);
        for (String expression : lines(args[0])) {
            StringBuilder shown = new StringBuilder();
            try {
                Pattern pattern = Pattern.compile(expression);
                for (String text : texts) {
                    shown.append(pattern.matcher(text).matches() ? '1' : '0');
                }
            } catch (PatternSyntaxException e) {
                shown.append("refused");
            }
            System.out.println(shown);
        }
    }

    private static List<String> lines(String file) throws Exception {
        List<String> read = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(file))) {
            read.add(new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8));
        }
        return read;
    }
}
