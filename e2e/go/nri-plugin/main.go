// nri-plugin is the NRI plugin that the benchmarks measure the driver against: containerd's Go stub with as little as
// possible behind it. Pods without the annotation below pass through it untouched.
//
//	nri-plugin SOCKET NAME INDEX
//
// A pod whose annotation `bench.netdra.dev/links` names links of the host, separated by commas, gets them as net1, net2
// and so on; they return under their old names when the pod stops.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const annotation = "bench.netdra.dev/links"

type plugin struct {
	host netns.NsHandle

	mutex sync.Mutex
	// Links in pods, by the id of the sandbox: host names, the first one is net1.
	moved map[string][]string
}

func (p *plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	text := pod.GetAnnotations()[annotation]
	if text == "" {
		return nil
	}
	names := strings.Split(text, ",")
	target, handle, err := openNamespace(pod)
	if err != nil {
		return err
	}
	defer target.Close()
	defer handle.Close()
	for index, name := range names {
		if err := moveIn(name, podName(index), target, handle); err != nil {
			return fmt.Errorf("link %s into pod %s/%s: %w", name, pod.GetNamespace(), pod.GetName(), err)
		}
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.moved[pod.GetId()] = names
	return nil
}

func (p *plugin) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.mutex.Lock()
	names := p.moved[pod.GetId()]
	delete(p.moved, pod.GetId())
	p.mutex.Unlock()
	if len(names) == 0 {
		return nil
	}
	target, handle, err := openNamespace(pod)
	if err != nil {
		return err
	}
	defer target.Close()
	defer handle.Close()
	for index, name := range names {
		link, err := handle.LinkByName(podName(index))
		if err != nil {
			return fmt.Errorf("link %s of pod %s/%s: %w", name, pod.GetNamespace(), pod.GetName(), err)
		}
		if err := handle.LinkSetDown(link); err != nil {
			return err
		}
		if err := move(link.Attrs().Index, name, p.host, &target); err != nil {
			return fmt.Errorf("link %s out of pod %s/%s: %w", name, pod.GetNamespace(), pod.GetName(), err)
		}
	}
	return nil
}

func podName(index int) string { return fmt.Sprintf("net%d", index+1) }

func openNamespace(pod *api.PodSandbox) (netns.NsHandle, *netlink.Handle, error) {
	for _, each := range pod.GetLinux().GetNamespaces() {
		if each.GetType() != "network" {
			continue
		}
		target, err := netns.GetFromPath(each.GetPath())
		if err != nil {
			return netns.None(), nil, fmt.Errorf("namespace %s: %w", each.GetPath(), err)
		}
		handle, err := netlink.NewHandleAt(target)
		if err != nil {
			target.Close()
			return netns.None(), nil, fmt.Errorf("netlink in %s: %w", each.GetPath(), err)
		}
		return target, handle, nil
	}
	return netns.None(), nil, errors.New("the pod has no network namespace of its own")
}

func moveIn(name, newName string, target netns.NsHandle, handle *netlink.Handle) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if link.Attrs().Flags&net.FlagUp != 0 {
		if err := netlink.LinkSetDown(link); err != nil {
			return err
		}
	}
	if err := move(link.Attrs().Index, newName, target, nil); err != nil {
		return err
	}
	moved, err := handle.LinkByName(newName)
	if err != nil {
		return err
	}
	return handle.LinkSetUp(moved)
}

// move renames a link and sends it to another namespace in one request, which the library has no function for: its LinkModify
// would name the link's kind as well, which cannot be changed.
func move(index int, name string, target netns.NsHandle, from *netns.NsHandle) error {
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	if from != nil {
		socket, err := nl.GetNetlinkSocketAt(*from, netns.None(), unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer socket.Close()
		request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}
	}
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(index)
	request.AddData(message)
	request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	request.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(target))))
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: nri-plugin SOCKET NAME INDEX")
	}
	host, err := netns.Get()
	if err != nil {
		return err
	}
	served, err := stub.New(
		&plugin{host: host, moved: map[string][]string{}},
		stub.WithSocketPath(args[0]),
		stub.WithPluginName(args[1]),
		stub.WithPluginIdx(args[2]),
	)
	if err != nil {
		return err
	}
	return served.Run(context.Background())
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nri-plugin:", err)
		os.Exit(1)
	}
}
