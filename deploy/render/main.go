// Command renderer renders a Helm chart as `helm template` does, as far as the charts of this repository need it: with
// text/template and sprig, which Helm itself is made of. It is no part of the product. Reads a request as JSON from
// stdin, writes the texts of the templates as JSON, by path.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

type request struct {
	ChartDir, ReleaseName, Namespace, KubeVersion string
	APIVersions                                   []string
	Values                                        map[string]interface{}
}

type apiVersions []string

// files are what .Files gives: the chart's own, besides templates.
type files struct{ dir string }

// Get is the text of a file, empty where there is none, as Helm has it.
func (files files) Get(name string) string {
	text, _ := os.ReadFile(filepath.Join(files.dir, name))
	return string(text)
}

// Has is what templates call as .Capabilities.APIVersions.Has.
func (versions apiVersions) Has(name string) bool {
	for _, version := range versions {
		if version == name {
			return true
		}
	}
	return false
}

type kubeVersion struct{ Version, Major, Minor string }

// String lets templates print the version itself.
func (version kubeVersion) String() string { return version.Version }

// merge lays the values of the user over those of the chart: maps key by key, null takes a key away.
func merge(base, over map[string]interface{}) map[string]interface{} {
	for key, value := range over {
		inner, isMap := value.(map[string]interface{})
		baseInner, baseIsMap := base[key].(map[string]interface{})
		switch {
		case value == nil:
			delete(base, key)
		case isMap && baseIsMap:
			base[key] = merge(baseInner, inner)
		default:
			base[key] = value
		}
	}
	return base
}

func readYaml(path string) (content map[string]interface{}, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, &content)
	}
	return content, err
}

func toYaml(value interface{}) (string, error) {
	text, err := yaml.Marshal(value)
	return strings.TrimSuffix(string(text), "\n"), err
}

// functions are those of Helm: sprig's without those that read the environment, and its own.
func functions(root *template.Template) template.FuncMap {
	all := sprig.TxtFuncMap()
	delete(all, "env")
	delete(all, "expandenv")
	include := func(name string, data interface{}) (string, error) {
		var text strings.Builder
		err := root.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	own := template.FuncMap{
		"include": include,
		"toYaml":  toYaml,
		"fromYamlArray": func(text string) (list []interface{}, err error) {
			err = yaml.Unmarshal([]byte(text), &list)
			return list, err
		},
		"tpl": func(text string, data interface{}) (string, error) {
			copied, err := root.Clone()
			if err == nil {
				copied, err = copied.New("tpl").Parse(text)
			}
			var result strings.Builder
			if err == nil {
				err = copied.Execute(&result, data)
			}
			return result.String(), err
		},
		"required": func(message string, value interface{}) (interface{}, error) {
			if value == nil || value == "" {
				return nil, errors.New(message)
			}
			return value, nil
		},
		// Without a cluster there is nothing to be found, as with `helm template`.
		"lookup": func(...string) map[string]interface{} { return map[string]interface{}{} },
	}
	for name, function := range own {
		all[name] = function
	}
	return all
}

func render(wanted request) (map[string]string, error) {
	chart, err := readYaml(filepath.Join(wanted.ChartDir, "Chart.yaml"))
	if err != nil {
		return nil, err
	}
	values, err := readYaml(filepath.Join(wanted.ChartDir, "values.yaml"))
	if err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(wanted.ChartDir, "templates", "*"))
	if err != nil {
		return nil, err
	}
	root := template.New("chart").Option("missingkey=zero")
	root.Funcs(functions(root))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if _, err = root.New(filepath.Base(path)).Parse(string(text)); err != nil {
			return nil, err
		}
	}
	major, minor, _ := strings.Cut(strings.TrimPrefix(wanted.KubeVersion, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	// Templates see Chart.yaml's fields with a capital letter.
	capital := map[string]interface{}{}
	for key, value := range chart {
		capital[strings.ToUpper(key[:1])+key[1:]] = value
	}
	data := map[string]interface{}{
		"Values":  merge(values, wanted.Values),
		"Chart":   capital,
		"Files":   files{wanted.ChartDir},
		"Release": map[string]interface{}{"Name": wanted.ReleaseName, "Namespace": wanted.Namespace, "Service": "Helm", "IsInstall": true, "IsUpgrade": false, "Revision": 1},
		"Capabilities": map[string]interface{}{
			"APIVersions": apiVersions(wanted.APIVersions),
			"KubeVersion": kubeVersion{wanted.KubeVersion, major, minor},
		},
	}
	texts := map[string]string{}
	for _, path := range paths {
		name := filepath.Base(path)
		if strings.HasPrefix(name, "_") {
			continue
		}
		data["Template"] = map[string]interface{}{"Name": name, "BasePath": "templates"}
		var text bytes.Buffer
		if err := root.ExecuteTemplate(&text, name, data); err != nil {
			return nil, err
		}
		// Helm prints nothing for a value that is not there. In a chart of ours that is a mistake.
		if strings.Contains(text.String(), "<no value>") {
			return nil, fmt.Errorf("%s: a value that is not there", name)
		}
		texts[name] = text.String()
	}
	return texts, nil
}

func main() {
	log.SetFlags(0)
	var wanted request
	if err := json.NewDecoder(os.Stdin).Decode(&wanted); err != nil {
		log.Fatal(err)
	}
	texts, err := render(wanted)
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(texts); err != nil {
		log.Fatal(err)
	}
}
