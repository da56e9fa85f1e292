import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonStreamParser;
import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;

/** Prints the devices of a request, and prints them again after each change: java -cp gson.jar ReadMetadata.java CLAIM REQUEST. */
public class ReadMetadata {
  static final Set<String> VERSIONS = Set.of("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1");

  /** Returns the first object of a known version: a file is a stream of objects, one for each version. */
  static JsonObject decode(String text) {
    for (Iterator<JsonElement> stream = new JsonStreamParser(text); stream.hasNext(); ) {
      JsonObject document = stream.next().getAsJsonObject();
      if (VERSIONS.contains(text(document, "apiVersion"))) return document;
    }
    throw new IllegalArgumentException("no known version in a metadata file");
  }

  /** Returns the content of the files, one for each driver. A blank file has no content yet: then there is none. */
  static List<String> read(Path folder) throws IOException {
    List<String> texts = new ArrayList<>();
    Set<Path> paths = new TreeSet<>();
    try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, "*-metadata.json")) {
      files.forEach(paths::add);
    }
    // Bytes that belong to two versions of a file need not be UTF-8: this constructor does not refuse them.
    for (Path path : paths) texts.add(new String(Files.readAllBytes(path), "UTF-8"));
    return texts.stream().anyMatch(String::isBlank) ? List.of() : texts;
  }

  static JsonObject object(JsonObject parent, String name) {
    return parent.has(name) ? parent.getAsJsonObject(name) : new JsonObject();
  }

  static JsonArray array(JsonObject parent, String name) {
    return parent.has(name) ? parent.getAsJsonArray(name) : new JsonArray();
  }

  static String text(JsonObject parent, String name) {
    return parent.has(name) ? parent.get(name).getAsString() : "-";
  }

  static void show(JsonObject document) {
    for (JsonElement request : document.getAsJsonArray("requests")) {
      for (JsonElement each : array(request.getAsJsonObject(), "devices")) {
        JsonObject device = each.getAsJsonObject(), network = object(device, "networkData");
        List<String> facts = new ArrayList<>();
        facts.add(text(document.getAsJsonObject("metadata"), "generation"));
        facts.add(text(object(object(device, "attributes"), "resource.kubernetes.io/pciBusID"), "string"));
        facts.add(text(network, "interfaceName"));
        facts.add(text(network, "hardwareAddress"));
        array(network, "ips").forEach(ip -> facts.add(ip.getAsString()));
        System.out.println(String.join(" ", facts));
      }
    }
  }

  /** @param args the claim's name, or the pod's name for a template claim (the claim's name goes first); and the request */
  public static void main(String[] args) throws IOException, InterruptedException {
    String base = System.getenv().getOrDefault("METADATA_ROOT", "") + "/var/run/kubernetes.io/dra-device-attributes/";
    Path claim = Path.of(base, "resourceclaims", args[0], args[1]);
    Path template = Path.of(base, "resourceclaimtemplates", args[0], args[1]);
    List<String> before = List.of(), shown = List.of();
    for (; ; Thread.sleep(200)) {
      Path folder = Files.exists(claim) ? claim : template;
      List<String> now = Files.exists(folder) ? read(folder) : List.of();
      // Files change in place: two reads that agree are of one version.
      if (now.equals(before) && !now.equals(shown)) {
        if (now.isEmpty()) System.out.println("no content");
        now.forEach(each -> show(decode(each)));
        shown = now;
      }
      before = now;
    }
  }
}
