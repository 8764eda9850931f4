package helmchart

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Release is what one installation of the chart would make.
type Release struct {
	Objects []Object
	Notes   string
}

// Object is one rendered object.
type Object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	YAML              []byte `json:"-"`
}

// Render renders the chart in dir for a release on a new Kubernetes. It returns an error if the chart's schema
// or its templates refuse the values.
func Render(ctx context.Context, dir, release, namespace string, values map[string]any) (*Release, error) {
	return RenderFor(ctx, "v1.36.0", dir, release, namespace, values)
}

// RenderFor does so for a version of Kubernetes.
func RenderFor(ctx context.Context, version, dir, release, namespace string, values map[string]any) (*Release, error) {
	c, err := loader.Load(dir)
	if err != nil {
		return nil, err
	}
	kube, err := common.ParseKubeVersion(version)
	if err != nil {
		return nil, err
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *kube
	options := common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, options, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.RenderWithContext(ctx, c, all)
	if err != nil {
		return nil, err
	}
	r := &Release{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch base := filepath.Base(name); {
		case base == "NOTES.txt":
			r.Notes = files[name]
		case strings.HasPrefix(base, "_"):
		default:
			objects, err := split(files[name])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			r.Objects = append(r.Objects, objects...)
		}
	}
	return r, nil
}

// split returns the objects of a file, without documents that hold comments only.
func split(text string) (all []Object, err error) {
	documents := yamlstream.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		o := Object{YAML: bytes.TrimSpace(document)}
		if err := yaml.Unmarshal(document, &o); err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, document)
		}
		if o.Kind == "" && o.Name == "" {
			continue
		}
		all = append(all, o)
	}
}

// ReadValues reads a file of values.
func ReadValues(file string) (map[string]any, error) { return common.ReadValuesFile(file) }
