// kubernetes-next asks the code of a Kubernetes release that is not out yet about our objects: its API server, scheduler,
// driver helper and kubelet.
//
//	kubernetes-next [GATE=true,...]
//
// All other feature gates have their defaults. The input is a stream of JSON objects with one question each; a line of the output answers each of them, either with
// "refused", the reason, or with "result":
//
//	{"create": object}                        the object as the API server stores it, for a claim with its status
//	{"allocate": {slices, classes, claims}}   the claims as the scheduler allocates them on node-1, one after the other
//	{"publish": {driver, slices}}             null: the driver helper publishes these slices as one pool
//	{"endpoint": path}                        null: the kubelet connects to a plugin at this path
//	{"kubelet": {kubeconfig, ...}}            the CDI devices of a pod, whose claims a kubelet prepares and unprepares
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	draapi "k8s.io/dynamic-resource-allocation/api"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/dynamic-resource-allocation/structured"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	"k8s.io/kubernetes/pkg/apis/resource"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra/plugin"
	policystrategy "k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy"
	bindingstrategy "k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicybinding"
	classstrategy "k8s.io/kubernetes/pkg/registry/resource/deviceclass"
	claimstrategy "k8s.io/kubernetes/pkg/registry/resource/resourceclaim"
	templatestrategy "k8s.io/kubernetes/pkg/registry/resource/resourceclaimtemplate"
	slicestrategy "k8s.io/kubernetes/pkg/registry/resource/resourceslice"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

const nodeName = "node-1"

type question struct {
	Create   json.RawMessage
	Allocate *allocation
	Publish  *pool
	Endpoint *string
	Kubelet  *kubelet
}

type allocation struct {
	Slices  []*resourcev1.ResourceSlice
	Classes classes
	Claims  []*resourcev1.ResourceClaim
}

type pool struct {
	Driver string
	Slices []resourceslice.Slice
}

type answer struct {
	Result  any    `json:"result"`
	Refused string `json:"refused,omitempty"`
}

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kubernetes-next:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, gates []string) error {
	if err := utilfeature.DefaultMutableFeatureGate.Set(strings.Join(gates, ",")); err != nil {
		return err
	}
	decoder, encoder := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	decoder.DisallowUnknownFields()
	for {
		var next question
		if err := decoder.Decode(&next); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var result answer
		var refusal error
		if result.Result, refusal = ask(ctx, &next); refusal != nil {
			result.Refused = refusal.Error()
		}
		if err := encoder.Encode(result); err != nil {
			return err
		}
	}
}

func ask(ctx context.Context, next *question) (any, error) {
	switch {
	case next.Create != nil:
		return create(ctx, next.Create)
	case next.Allocate != nil:
		return next.Allocate.run(ctx)
	case next.Publish != nil:
		return nil, next.Publish.run(ctx)
	case next.Endpoint != nil:
		manager := plugin.DRAPluginManager{}
		return nil, manager.ValidatePlugin(ctx, "driver.example.com", *next.Endpoint, []string{drapb.DRAPluginService})
	case next.Kubelet != nil:
		return next.Kubelet.run(ctx)
	}
	return nil, errors.New("a question without a known field")
}

// The registry of the API server calls these for each request: before they validate, they drop fields whose gate is off.
var (
	allowed = authorizerfactory.NewAlwaysAllowAuthorizer()
	// Claims with admin access need the label.
	namespaces = fake.NewClientset(&corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{resource.DRAAdminNamespaceLabelKey: "true"}},
	}).CoreV1().Namespaces()
	claims     = claimstrategy.NewStrategy(namespaces, allowed)
	strategies = map[string]rest.RESTCreateStrategy{
		"DeviceClass":                      classstrategy.Strategy,
		"ResourceClaim":                    claims,
		"ResourceClaimTemplate":            templatestrategy.NewStrategy(namespaces),
		"ResourceSlice":                    slicestrategy.Strategy,
		"ValidatingAdmissionPolicy":        policystrategy.NewStrategy(allowed, nil),
		"ValidatingAdmissionPolicyBinding": bindingstrategy.NewStrategy(allowed, nil, nil),
	}
	codecs = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)
)

func create(ctx context.Context, text []byte) (runtime.Object, error) {
	object, kind, err := codecs.UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		return nil, err
	}
	legacyscheme.Scheme.Default(object)
	stored, err := legacyscheme.Scheme.ConvertToVersion(object, runtime.InternalGroupVersioner)
	if err != nil {
		return nil, err
	}
	strategy, found := strategies[kind.Kind]
	if !found {
		return nil, fmt.Errorf("kubernetes-next does not know the kind %s", kind.Kind)
	}
	metadata, err := meta.Accessor(stored)
	if err != nil {
		return nil, err
	}
	if strategy.NamespaceScoped() {
		metadata.SetNamespace(metav1.NamespaceDefault)
	}
	rest.FillObjectMetaSystemFields(metadata)
	// Updates need one, and the storage would set it.
	metadata.SetResourceVersion("1")
	ctx = request.WithNamespace(request.WithUser(ctx, &user.DefaultInfo{Name: "admin"}), metadata.GetNamespace())
	info := request.RequestInfo{APIGroup: kind.Group, APIVersion: kind.Version}
	wanted := stored.DeepCopyObject()
	if err := rest.BeforeCreate(strategy, request.WithRequestInfo(ctx, &info), stored); err != nil {
		return nil, err
	}
	if _, isClaim := stored.(*resource.ResourceClaim); isClaim {
		info.Subresource = "status"
		status := claimstrategy.NewStatusStrategy(claims)
		if err := rest.BeforeUpdate(status, request.WithRequestInfo(ctx, &info), wanted, stored); err != nil {
			return nil, err
		}
		stored = wanted
	}
	return legacyscheme.Scheme.ConvertToVersion(stored, kind.GroupVersion())
}

type classes []*resourcev1.DeviceClass

func (all classes) List() ([]*resourcev1.DeviceClass, error) { return all, nil }

func (all classes) Get(name string) (*resourcev1.DeviceClass, error) {
	for _, class := range all {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("no class %s", name)
}

func (a *allocation) run(ctx context.Context) ([]resourcev1.AllocationResult, error) {
	slices := make([]*draapi.ResourceSlice, len(a.Slices))
	for index, slice := range a.Slices {
		slices[index] = &draapi.ResourceSlice{}
		if err := draapi.Convert_v1_ResourceSlice_To_api_ResourceSlice(slice, slices[index], nil); err != nil {
			return nil, err
		}
	}
	gates := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	cache := cel.NewCache(10, cel.Features{EnableConsumableCapacity: gates.EnableDRAConsumableCapacity})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	taken := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.DeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	var results []resourcev1.AllocationResult
	for _, claim := range a.Claims {
		legacyscheme.Scheme.Default(claim)
		allocator, err := structured.NewAllocator(ctx, dynamicresources.AllocatorFeatures(gates), taken, a.Classes, slices, cache)
		if err != nil {
			return results, err
		}
		found, err := allocator.Allocate(ctx, node, []*resourcev1.ResourceClaim{claim})
		if err != nil || len(found) == 0 {
			return results, errors.Join(fmt.Errorf("claim %s cannot be allocated", claim.Name), err)
		}
		results = append(results, found...)
		take(&taken, found[0].Devices.Results)
	}
	return results, nil
}

// take adds the devices of a claim to those that are taken.
func take(taken *structured.AllocatedState, results []resourcev1.DeviceRequestAllocationResult) {
	for _, result := range results {
		id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
		switch {
		case result.AdminAccess != nil && *result.AdminAccess:
		case result.ShareID == nil:
			taken.AllocatedDevices.Insert(id)
		default:
			taken.AllocatedSharedDeviceIDs.Insert(id)
			taken.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
		}
	}
}

func (p *pool) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outcome := make(chan error, 1)
	report := func(err error) {
		select {
		case outcome <- err:
		default: // Only the first one counts.
		}
	}
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}})
	client.PrependReactor("create", "resourceslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		report(nil)
		return false, nil, nil
	})
	pools := map[string]resourceslice.Pool{nodeName: {Slices: p.Slices}}
	controller, err := resourceslice.StartController(ctx, resourceslice.Options{
		DriverName:   p.Driver,
		KubeClient:   client,
		Owner:        &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: nodeName},
		Resources:    &resourceslice.DriverResources{Pools: pools},
		ErrorHandler: func(_ context.Context, err error, _ string) { report(err) },
	})
	if err != nil {
		return err
	}
	defer controller.Stop()
	return <-outcome
}
