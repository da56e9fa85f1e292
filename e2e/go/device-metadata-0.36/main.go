// Kubernetes' own code for device metadata, to be compared with ours.
//
//	device-metadata read FILE...          prints for each file what is decoded, and why that is not valid
//	device-metadata strict FILE           decodes one object as a consumer does that accepts no field it does not know
//	device-metadata write FOLDER <INPUT   writes as a driver on the kubeletplugin helper that serves these claims
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	serializerjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// What is to be written: a claim, what the driver prepares for it, and how that changes afterwards.
type input struct {
	Driver  string
	Claim   *resourceapi.ResourceClaim
	Devices []kubeletplugin.Device
	// UID of the driver's pod in a rolling update, and how long its prepare then takes.
	PodUID types.UID
	HoldMs time.Duration
	Updates []struct {
		Request string
		Devices []kubeletplugin.Device
	}
}

// A line of the output of read.
type output struct {
	Document v1alpha1.DeviceMetadata `json:"document"`
	Invalid  string                  `json:"invalid,omitempty"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "device-metadata:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) > 1 && args[0] == "read":
		return read(args[1:])
	case len(args) == 2 && args[0] == "strict":
		return decodeStrictly(args[1])
	case len(args) == 2 && args[0] == "write":
		var in input
		decoder := json.NewDecoder(os.Stdin)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&in); err != nil {
			return fmt.Errorf("input: %w", err)
		}
		return write(context.Background(), args[1], &in)
	}
	return fmt.Errorf("usage: device-metadata read FILE... | write FOLDER")
}

func read(paths []string) error {
	encoder := json.NewEncoder(os.Stdout)
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		var result output
		if result.Invalid, err = decode(json.NewDecoder(file), &result.Document); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := file.Close(); err != nil {
			return err
		}
		if err := encoder.Encode(result); err != nil {
			return err
		}
	}
	return nil
}

// decodeStrictly does what the consumer in KEP-5304 does.
func decodeStrictly(path string) error {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	serializer := serializerjson.NewSerializerWithOptions(serializerjson.DefaultMetaFactory, scheme, scheme,
		serializerjson.SerializerOptions{Strict: true})
	object, _, err := serializer.Decode(text, nil, nil)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(output{Document: *object.(*v1alpha1.DeviceMetadata)})
}

// The helper writes metadata only while it serves a kubelet's call, so there is one, over its socket.
func write(ctx context.Context, folder string, in *input) error {
	socket := "dra.sock"
	options := metadataOptions()
	if in.PodUID != "" {
		socket = "dra-" + string(in.PodUID) + ".sock"
		options = append(options, kubeletplugin.RollingUpdate(in.PodUID))
	}
	helper, err := kubeletplugin.Start(ctx, &driver{input: in}, append(options,
		kubeletplugin.DriverName(in.Driver),
		kubeletplugin.KubeClient(fake.NewClientset(in.Claim)),
		kubeletplugin.NodeName("node-1"),
		kubeletplugin.RegistrationService(false),
		kubeletplugin.PluginDataDirectoryPath(folder),
		kubeletplugin.CDIDirectory(filepath.Join(folder, "cdi")))...)
	if err != nil {
		return err
	}
	defer helper.Stop()
	if err := prepare(ctx, filepath.Join(folder, socket), in.Claim); err != nil {
		return err
	}
	claim := in.Claim
	for _, update := range in.Updates {
		err := helper.UpdateRequestMetadata(ctx, claim.Namespace, claim.Name, claim.UID, update.Request, update.Devices)
		if err != nil {
			return err
		}
	}
	return nil
}

func prepare(ctx context.Context, socket string, claim *resourceapi.ResourceClaim) error {
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	answer, err := drapb.NewDRAPluginClient(connection).NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{
		Claims: []*drapb.Claim{{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)}},
	})
	if err != nil {
		return err
	}
	prepared := answer.Claims[string(claim.UID)]
	if prepared.GetError() != "" {
		return fmt.Errorf("claim %s was not prepared: %s", claim.UID, prepared.GetError())
	}
	return nil
}

type driver struct {
	// The methods that are not called here, which differ between versions.
	kubeletplugin.DRAPlugin
	input *input
}

func (d *driver) PrepareResourceClaims(context.Context, []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	if d.input.PodUID != "" {
		fmt.Println("prepare begins")
		time.Sleep(d.input.HoldMs * time.Millisecond)
		fmt.Println("prepare ends")
	}
	return map[types.UID]kubeletplugin.PrepareResult{d.input.Claim.UID: {Devices: d.input.Devices}}, nil
}

func (d *driver) HandleError(_ context.Context, err error, message string) {
	fmt.Fprintln(os.Stderr, "device-metadata:", message, err)
}
