/* Prints the devices of a request, and prints them again after each change: read-metadata CLAIM REQUEST.
 * cc -o read-metadata read-metadata.c -ljansson */
#define _GNU_SOURCE
#include <err.h>
#include <glob.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *text_of(json_t *value) {
  const char *text = json_string_value(value);
  return text == NULL ? "-" : text;
}

/* The first object of a known version: a file is a stream of objects, one for each version. */
static json_t *decode(const char *text) {
  json_error_t error;
  for (json_t *document; (document = json_loads(text, JSON_DISABLE_EOF_CHECK, &error)); text += error.position) {
    const char *version = text_of(json_object_get(document, "apiVersion"));
    if (strcmp(version, "metadata.resource.k8s.io/v1beta1") == 0) return document;
    if (strcmp(version, "metadata.resource.k8s.io/v1alpha1") == 0) return document;
    json_decref(document);
  }
  errx(1, "no known version in a metadata file: %s", error.text);
}

static void show(const char *text) {
  size_t i, j, k;
  json_t *request, *device, *ip, *document = decode(text), *metadata = json_object_get(document, "metadata");
  json_array_foreach(json_object_get(document, "requests"), i, request) {
    json_array_foreach(json_object_get(request, "devices"), j, device) {
      json_t *network = json_object_get(device, "networkData");
      json_t *pci = json_object_get(json_object_get(device, "attributes"), "resource.kubernetes.io/pciBusID");
      printf("%" JSON_INTEGER_FORMAT " %s", json_integer_value(json_object_get(metadata, "generation")),
             text_of(json_object_get(pci, "string")));
      printf(" %s %s", text_of(json_object_get(network, "interfaceName")),
             text_of(json_object_get(network, "hardwareAddress")));
      json_array_foreach(json_object_get(network, "ips"), k, ip) printf(" %s", text_of(ip));
      putchar('\n');
    }
  }
  json_decref(document);
}

/* The contents of the files of all drivers, each with a NUL behind it. While a file is missing or blank: empty. */
static char *read_files(const char *named, const char *template, size_t *size) {
  glob_t paths;
  char *all = NULL, *text = NULL;
  size_t room = 0, ready = glob(named, 0, NULL, &paths) == 0;
  if (!ready) {
    globfree(&paths);
    ready = glob(template, 0, NULL, &paths) == 0;
  }
  FILE *out = open_memstream(&all, size);
  for (size_t i = 0; ready && i < paths.gl_pathc; i++) {
    FILE *file = fopen(paths.gl_pathv[i], "r");
    if (file == NULL) err(1, "%s", paths.gl_pathv[i]);
    ready = getdelim(&text, &room, '\0', file) > 0 && text[strspn(text, " \n")] != '\0';
    if (ready) fwrite(text, 1, strlen(text) + 1, out);
    fclose(file);
  }
  free(text);
  globfree(&paths);
  fclose(out);
  if (!ready) *size = 0;
  return all;
}

static int is_same(const char *a, size_t a_size, const char *b, size_t b_size) {
  return a_size == b_size && (a_size == 0 || memcmp(a, b, a_size) == 0);
}

int main(int argc, char **argv) {
  char *named, *template, *before = NULL, *shown = NULL;
  const char *root = getenv("METADATA_ROOT");
  size_t before_size = 0, shown_size = 0, size;
  if (argc != 3) errx(2, "usage: read-metadata CLAIM REQUEST");
  /* CLAIM is the claim's name, or the pod's name for a template claim; the claim's name goes first. */
  const char *format = "%s/var/run/kubernetes.io/dra-device-attributes/%s/%s/%s/*-metadata.json";
  if (root == NULL) root = "";
  if (asprintf(&named, format, root, "resourceclaims", argv[1], argv[2]) < 0) err(1, NULL);
  if (asprintf(&template, format, root, "resourceclaimtemplates", argv[1], argv[2]) < 0) err(1, NULL);
  for (setlinebuf(stdout);; usleep(200000)) {
    char *now = read_files(named, template, &size);
    /* Files change in place: two reads that agree are of one version. */
    int is_new = is_same(now, size, before, before_size) && !is_same(now, size, shown, shown_size);
    free(before);
    before = now;
    before_size = size;
    if (!is_new) continue;
    if (size == 0) puts("no content");
    for (const char *text = now; text < now + size; text += strlen(text) + 1) show(text);
    free(shown);
    shown = memcpy(malloc(size + 1), now, size);
    shown_size = size;
  }
}
