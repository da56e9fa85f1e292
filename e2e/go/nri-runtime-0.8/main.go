// The runtime's side of NRI, as containerd uses it, to be driven by a test.
//
// usage: nri-runtime SOCKET PLUGIN-FOLDER REQUEST-TIMEOUT
//
// Each line of the input is a request, {"id": 1, "method": "RunPodSandbox", "request": {"pod": {...}}}; all of them are
// worked on at the same time, as CRI calls are. Each line of the output answers one: {"id": 1} or {"id": 1, "error": "..."}.
// The first line of the output, {"id": 0}, says that plugins can connect. It ends with its input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
)

type request struct {
	ID      int             `json:"id"`
	Method  string          `json:"method"`
	Request json.RawMessage `json:"request"`
}

type answer struct {
	ID    int    `json:"id"`
	Error string `json:"error,omitempty"`
}

type method func(context.Context, json.RawMessage) error

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nri-runtime:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("usage: nri-runtime SOCKET PLUGIN-FOLDER REQUEST-TIMEOUT")
	}
	timeout, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	adaptation.SetPluginRequestTimeout(timeout)
	r, err := adaptation.New("neighbour", "v1.2.3", synchronize, refuseUpdates,
		adaptation.WithSocketPath(args[0]),
		adaptation.WithPluginPath(args[1]),
		adaptation.WithPluginConfigPath(filepath.Join(args[1], "conf.d")))
	if err != nil {
		return err
	}
	if err := r.Start(); err != nil {
		return err
	}
	defer r.Stop()
	return serve(methodsOf(r))
}

func methodsOf(r *adaptation.Adaptation) map[string]method {
	return map[string]method{
		"RunPodSandbox":    call(r.RunPodSandbox),
		"StopPodSandbox":   call(r.StopPodSandbox),
		"RemovePodSandbox": call(r.RemovePodSandbox),
		"CreateContainer": call(func(ctx context.Context, request *api.CreateContainerRequest) error {
			_, err := r.CreateContainer(ctx, request)
			return err
		}),
	}
}

// call decodes the request of a method: its type depends on the version of NRI.
func call[Request any](next func(context.Context, *Request) error) method {
	return func(ctx context.Context, raw json.RawMessage) error {
		request := new(Request)
		if err := json.Unmarshal(raw, request); err != nil {
			return err
		}
		return next(ctx, request)
	}
}

// synchronize tells a plugin that connects of no pods.
func synchronize(ctx context.Context, tell adaptation.SyncCB) error {
	_, err := tell(ctx, nil, nil)
	return err
}

func refuseUpdates(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
	return nil, fmt.Errorf("this runtime updates no containers")
}

func serve(methods map[string]method) error {
	var output sync.Mutex
	encoder := json.NewEncoder(os.Stdout)
	say := func(a answer) {
		output.Lock()
		defer output.Unlock()
		if err := encoder.Encode(a); err != nil {
			panic(err)
		}
	}
	say(answer{})
	for decoder := json.NewDecoder(bufio.NewReader(os.Stdin)); decoder.More(); {
		var request request
		if err := decoder.Decode(&request); err != nil {
			return err
		}
		go func() {
			result := answer{ID: request.ID}
			if method, ok := methods[request.Method]; !ok {
				result.Error = "no such method: " + request.Method
			} else if err := method(context.Background(), request.Request); err != nil {
				result.Error = err.Error()
			}
			say(result)
		}()
	}
	return nil
}
