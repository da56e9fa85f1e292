// slice-publisher publishes the devices of many nodes with Kubernetes' own ResourceSlice controller, one controller with a
// client of its own for each node, as if a driver ran on each of them.
//
//	slice-publisher KUBECONFIG DRIVER NODE...
//
// Each line of the input is a command, and each line of the output, "done", answers one. What is published is written behind
// the answer.
//
//	publish FILE   offers the devices of FILE, a JSON list, on every node
//	replace        starts another controller for each node, one after the other, and ends the one before it then
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

type publisher struct {
	config      *rest.Config
	driver      string
	nodes       []string
	devices     []resourceapi.Device
	controllers map[string]*resourceslice.Controller
}

func (p *publisher) resources(node string) *resourceslice.DriverResources {
	slice := resourceslice.Slice{Devices: p.devices}
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{slice}}
	return &resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}
}

func (p *publisher) publish(ctx context.Context, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	p.devices = nil
	if err := json.Unmarshal(text, &p.devices); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(p.controllers) > 0 {
		for node, controller := range p.controllers {
			controller.Update(p.resources(node))
		}
		return nil
	}
	return p.startAll(ctx)
}

// All nodes at the same moment.
func (p *publisher) startAll(ctx context.Context) error {
	errs := make([]error, len(p.nodes))
	started := make([]*resourceslice.Controller, len(p.nodes))
	var group sync.WaitGroup
	for index, node := range p.nodes {
		group.Go(func() { started[index], errs[index] = p.start(ctx, node) })
	}
	group.Wait()
	for index, node := range p.nodes {
		p.controllers[node] = started[index]
	}
	return errors.Join(errs...)
}

func (p *publisher) replace(ctx context.Context) error {
	for _, node := range p.nodes {
		next, err := p.start(ctx, node)
		if err != nil {
			return err
		}
		p.controllers[node].Stop()
		p.controllers[node] = next
	}
	return nil
}

func (p *publisher) start(ctx context.Context, node string) (*resourceslice.Controller, error) {
	client, err := kubernetes.NewForConfig(p.config)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", node, err)
	}
	controller, err := resourceslice.StartController(ctx, resourceslice.Options{
		DriverName: p.driver,
		KubeClient: client,
		Owner:      &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: node},
		Resources:  p.resources(node),
	})
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", node, err)
	}
	return controller, nil
}

func run(args []string) error {
	if len(args) < 3 {
		return errors.New("usage: slice-publisher KUBECONFIG DRIVER NODE...")
	}
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return err
	}
	config.QPS = -1
	ctx := context.Background()
	p := &publisher{config: config, driver: args[1], nodes: args[2:], controllers: map[string]*resourceslice.Controller{}}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		command, argument, _ := strings.Cut(input.Text(), " ")
		switch command {
		case "publish":
			err = p.publish(ctx, argument)
		case "replace":
			err = p.replace(ctx)
		default:
			err = fmt.Errorf("no command %q", command)
		}
		if err != nil {
			return err
		}
		fmt.Println("done")
	}
	return input.Err()
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "slice-publisher:", err)
		os.Exit(1)
	}
}
