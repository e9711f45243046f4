// Answers questions about API lifecycles with the functions that kube-apiserver uses.
//
// Each line of the input is one question in JSON, each line of the output its answer. The
// tests of the crate send random questions and compare the answers with their own.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/deprecation"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/resourceconfig"
	"k8s.io/apiserver/pkg/server/storage"
	"k8s.io/component-base/compatibility"
)

// A release as major and minor.
type release [2]uint

func (r release) version() *utilversion.Version {
	return utilversion.MajorMinor(r[0], r[1])
}

// A switch of a version (two names) or of a resource (three names).
type toggle struct {
	Name []string `json:"name"`
	On   bool     `json:"on"`
}

type lifecycle struct {
	Introduced *release `json:"introduced"`
	Deprecated *release `json:"deprecated"`
	Removed    *release `json:"removed"`
	// The kind is not known to the scheme.
	Missing bool `json:"missing"`
}

type question struct {
	Op string `json:"op"`

	// compare
	Left  string `json:"left"`
	Right string `json:"right"`

	// merge
	Groups   map[string][]string `json:"groups"`
	Defaults []toggle            `json:"defaults"`
	Config   map[string]string   `json:"config"`
	Forward  bool                `json:"forward"`

	// filter
	Current          release                         `json:"current"`
	PreRelease       string                          `json:"pre_release"`
	StrictInAlpha    bool                            `json:"strict_in_alpha"`
	OneMoreRelease   bool                            `json:"one_more_release"`
	ConfigForward    bool                            `json:"config_forward"`
	Group            string                          `json:"group"`
	Resources        map[string]map[string]lifecycle `json:"resources"`
	ExplicitVersions []string                        `json:"explicit_versions"`
	// Version and resource.
	ExplicitResources [][]string `json:"explicit_resources"`

	// storage: the versions of one kind, the most preferred first
	Versions   []string    `json:"versions"`
	Lifecycles []lifecycle `json:"lifecycles"`
	MinCompat  release     `json:"min_compat"`
	Override   string      `json:"override"`

	// deprecation, hash
	Kind        []string  `json:"kind"`
	Replacement []string  `json:"replacement"`
	Lifecycle   lifecycle `json:"lifecycle"`
}

type answer struct {
	Error string `json:"error,omitempty"`

	Order     int      `json:"order"`
	Versions  []toggle `json:"versions,omitempty"`
	Resources []toggle `json:"resources,omitempty"`
	// Named in runtime-config.
	ExplicitVersions  []toggle `json:"explicit_versions,omitempty"`
	ExplicitResources []toggle `json:"explicit_resources,omitempty"`
	// Version and name of what is served.
	Kept    [][]string `json:"kept,omitempty"`
	Text    string     `json:"text,omitempty"`
	Removed string     `json:"removed,omitempty"`
}

func main() {
	// Errors are part of the answers; the default handlers would log and wait.
	utilruntime.ErrorHandlers = nil
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	defer out.Flush()
	decoder := json.NewDecoder(in)
	encoder := json.NewEncoder(out)
	for decoder.More() {
		var asked question
		if err := decoder.Decode(&asked); err != nil {
			panic(err)
		}
		if err := encoder.Encode(reply(asked)); err != nil {
			panic(err)
		}
	}
}

func reply(asked question) answer {
	switch asked.Op {
	case "compare":
		order := version.CompareKubeAwareVersionStrings(asked.Left, asked.Right)
		return answer{Order: sign(order)}
	case "merge":
		return merge(asked)
	case "filter":
		return filter(asked)
	case "storage":
		return store(asked)
	case "hash":
		return answer{Text: discovery.StorageVersionHash(asked.Kind[0], asked.Kind[1], asked.Kind[2])}
	case "deprecation":
		return deprecate(asked)
	}
	return answer{Error: "unknown question " + asked.Op}
}

func sign(order int) int {
	switch {
	case order < 0:
		return -1
	case order > 0:
		return 1
	}
	return 0
}

// The registered groups and versions.
type registry map[string][]string

func (r registry) IsGroupRegistered(group string) bool {
	_, ok := r[group]
	return ok
}

func (r registry) IsVersionRegistered(wanted schema.GroupVersion) bool {
	for _, name := range r[wanted.Group] {
		if name == wanted.Version {
			return true
		}
	}
	return false
}

func (r registry) PrioritizedVersionsAllGroups() []schema.GroupVersion {
	var all []schema.GroupVersion
	for group := range r {
		all = append(all, r.PrioritizedVersionsForGroup(group)...)
	}
	return all
}

func (r registry) PrioritizedVersionsForGroup(group string) []schema.GroupVersion {
	var all []schema.GroupVersion
	for _, name := range r[group] {
		all = append(all, schema.GroupVersion{Group: group, Version: name})
	}
	return all
}

func merge(asked question) answer {
	config := storage.NewResourceConfig()
	for _, set := range asked.Defaults {
		if len(set.Name) == 2 {
			config.GroupVersionConfigs[schema.GroupVersion{Group: set.Name[0], Version: set.Name[1]}] = set.On
		} else {
			name := schema.GroupVersionResource{Group: set.Name[0], Version: set.Name[1], Resource: set.Name[2]}
			config.ResourceConfigs[name] = set.On
		}
	}
	if _, err := resourceconfig.ParseGroupVersions(asked.Config); err != nil {
		return answer{Error: err.Error()}
	}
	known := registry(asked.Groups)
	config, err := resourceconfig.MergeAPIResourceConfigs(config, asked.Config, known)
	if err == nil && asked.Forward {
		config, err = resourceconfig.EmulationForwardCompatibleResourceConfig(config, asked.Config, known)
	}
	if err != nil {
		return answer{Error: err.Error()}
	}
	var found answer
	for name, on := range config.GroupVersionConfigs {
		found.Versions = append(found.Versions, toggle{[]string{name.Group, name.Version}, on})
	}
	for name, on := range config.ExplicitGroupVersionConfigs {
		set := toggle{[]string{name.Group, name.Version}, on}
		found.ExplicitVersions = append(found.ExplicitVersions, set)
	}
	for name, on := range config.ResourceConfigs {
		set := toggle{[]string{name.Group, name.Version, name.Resource}, on}
		found.Resources = append(found.Resources, set)
	}
	for name, on := range config.ExplicitResourceConfigs {
		set := toggle{[]string{name.Group, name.Version, name.Resource}, on}
		found.ExplicitResources = append(found.ExplicitResources, set)
	}
	return found
}

// The object of a resource, without its version.
type internal struct {
	metav1.TypeMeta
	name string
}

func (o *internal) DeepCopyObject() runtime.Object { return o }

// An object in a version, with none, one or both steps of its lifecycle.
type plain struct{ metav1.TypeMeta }

func (o *plain) DeepCopyObject() runtime.Object { return o }

type introduced struct {
	plain
	since release
}

func (o *introduced) APILifecycleIntroduced() (int, int) { return int(o.since[0]), int(o.since[1]) }

type removed struct {
	plain
	until release
}

func (o *removed) APILifecycleRemoved() (int, int) { return int(o.until[0]), int(o.until[1]) }

type bounded struct {
	introduced
	until release
}

func (o *bounded) APILifecycleRemoved() (int, int) { return int(o.until[0]), int(o.until[1]) }

func versioned(of lifecycle) runtime.Object {
	switch {
	case of.Introduced != nil && of.Removed != nil:
		return &bounded{introduced{since: *of.Introduced}, *of.Removed}
	case of.Introduced != nil:
		return &introduced{since: *of.Introduced}
	case of.Removed != nil:
		return &removed{until: *of.Removed}
	}
	return &plain{}
}

type versioner struct{ question }

func (v versioner) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	found := v.Resources[to.(schema.GroupVersion).Version][in.(*internal).name]
	if found.Missing {
		return nil, errors.New("no such kind")
	}
	return versioned(found), nil
}

func (v versioner) PrioritizedVersionsForGroup(group string) []schema.GroupVersion {
	return registry{v.Group: v.Versions}.PrioritizedVersionsForGroup(group)
}

type served struct{ name string }

func (s served) New() runtime.Object { return &internal{name: s.name} }
func (s served) Destroy()            {}

func filter(asked question) answer {
	os.Setenv("KUBE_APISERVER_STRICT_REMOVED_API_HANDLING_IN_ALPHA", text(asked.StrictInAlpha))
	os.Setenv("KUBE_APISERVER_SERVE_REMOVED_APIS_FOR_ONE_RELEASE", text(asked.OneMoreRelease))
	evaluator, err := server.NewResourceExpirationEvaluatorFromOptions(server.ResourceExpirationEvaluatorOptions{
		CurrentVersion:                          asked.Current.version(),
		Prerelease:                              asked.PreRelease,
		EmulationForwardCompatible:              asked.Forward,
		RuntimeConfigEmulationForwardCompatible: asked.ConfigForward,
	})
	if err != nil {
		return answer{Error: err.Error()}
	}
	config := storage.NewResourceConfig()
	for _, name := range asked.ExplicitVersions {
		config.ExplicitlyEnableVersions(schema.GroupVersion{Group: asked.Group, Version: name})
	}
	for _, name := range asked.ExplicitResources {
		config.ExplicitlyEnableResources(schema.GroupVersionResource{Group: asked.Group, Version: name[0], Resource: name[1]})
	}
	left := map[string]map[string]rest.Storage{}
	for version, names := range asked.Resources {
		left[version] = map[string]rest.Storage{}
		for name := range names {
			left[version][name] = served{name}
		}
	}
	if err := evaluator.RemoveUnavailableKinds(asked.Group, versioner{asked}, left, config); err != nil {
		return answer{Error: err.Error()}
	}
	var found answer
	for version, names := range left {
		for name := range names {
			found.Kept = append(found.Kept, []string{version, name})
		}
	}
	return found
}

func text(on bool) string {
	if on {
		return "true"
	}
	return "false"
}

// The types of a scheme have no state, so each place in the list of versions has its own
// type, whose lifecycle is in this table.
var places [6]release

type place0 struct{ plain }
type place1 struct{ plain }
type place2 struct{ plain }
type place3 struct{ plain }
type place4 struct{ plain }
type place5 struct{ plain }

func since(place int) (int, int) { return int(places[place][0]), int(places[place][1]) }

func (*place0) APILifecycleIntroduced() (int, int) { return since(0) }
func (*place1) APILifecycleIntroduced() (int, int) { return since(1) }
func (*place2) APILifecycleIntroduced() (int, int) { return since(2) }
func (*place3) APILifecycleIntroduced() (int, int) { return since(3) }
func (*place4) APILifecycleIntroduced() (int, int) { return since(4) }
func (*place5) APILifecycleIntroduced() (int, int) { return since(5) }

func store(asked question) answer {
	const group, kind = "example.io", "Thing"
	types := []runtime.Object{&place0{}, &place1{}, &place2{}, &place3{}, &place4{}, &place5{}}
	scheme := runtime.NewScheme()
	example := &internal{}
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: group, Version: runtime.APIVersionInternal, Kind: kind}, example)
	var priority []schema.GroupVersion
	for place, name := range asked.Versions {
		version := schema.GroupVersion{Group: group, Version: name}
		priority = append(priority, version)
		object := runtime.Object(&plain{})
		if of := asked.Lifecycles[place]; of.Introduced != nil {
			places[place] = *of.Introduced
			object = types[place]
		}
		scheme.AddKnownTypeWithName(version.WithKind(kind), object)
	}
	if err := scheme.SetVersionPriority(priority...); err != nil {
		return answer{Error: err.Error()}
	}
	effective := compatibility.NewEffectiveVersionFromString("1.99", "0.0", "0.0")
	effective.SetEmulationVersion(asked.Current.version())
	effective.SetMinCompatibilityVersion(asked.MinCompat.version())
	config := storage.NewDefaultResourceEncodingConfigForEffectiveVersion(scheme, effective)
	things := schema.GroupResource{Group: group, Resource: "things"}
	if asked.Override != "" {
		config.SetResourceEncoding(things, schema.GroupVersion{Group: group, Version: asked.Override}, schema.GroupVersion{})
	}
	chosen, err := config.BackwardCompatibileStorageEncodingFor(things, example)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Text: chosen.Version}
}

// An object with a whole lifecycle.
type aging struct {
	metav1.TypeMeta
	lifecycle
	replacement schema.GroupVersionKind
}

func (o *aging) DeepCopyObject() runtime.Object { return o }

func (o *aging) APILifecycleDeprecated() (int, int) { return optional(o.Deprecated) }

func (o *aging) APILifecycleRemoved() (int, int) { return optional(o.lifecycle.Removed) }

func (o *aging) APILifecycleReplacement() schema.GroupVersionKind { return o.replacement }

func optional(of *release) (int, int) {
	if of == nil {
		return 0, 0
	}
	return int(of[0]), int(of[1])
}

func deprecate(asked question) answer {
	object := &aging{lifecycle: asked.Lifecycle}
	object.SetGroupVersionKind(kindOf(asked.Kind))
	if asked.Replacement != nil {
		object.replacement = kindOf(asked.Replacement)
	}
	if !deprecation.IsDeprecated(object, int(asked.Current[0]), int(asked.Current[1])) {
		return answer{}
	}
	return answer{Text: deprecation.WarningMessage(object), Removed: deprecation.RemovedRelease(object)}
}

func kindOf(names []string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: names[0], Version: names[1], Kind: names[2]}
}
