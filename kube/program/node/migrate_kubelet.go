package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodeattest/nodeattest/refusal"
)

const (
	// systemctlLimit bounds one call of systemctl: the kubelet waits for the authenticator's service, a
	// minute at most.
	systemctlLimit = 3 * time.Minute
	// askLimit bounds one request about the node, with the plugin.
	askLimit = 15 * time.Second
	// maxNode bounds the answer with a Node, which lists the images of the machine, in bytes.
	maxNode = 4 << 20
)

// systemctl runs systemctl, and returns its standard output without spaces at the ends.
func systemctl(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, systemctlLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "systemctl", args...) //nolint:gosec // arguments of this package
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, refusal.Text(strings.TrimSpace(errs.String())))
	}
	return strings.TrimSpace(string(out)), err
}

// active reports whether a unit runs.
func (m *migration) active(ctx context.Context, unit string) (bool, error) {
	state, err := m.systemctl(ctx, "show", "-P", "ActiveState", unit)
	return state == "active" || state == "activating" || state == "reloading", err
}

// invocation returns systemd's ID of the kubelet's last start.
func (m *migration) invocation(ctx context.Context) (string, error) {
	return m.systemctl(ctx, "show", "-P", "InvocationID", "kubelet")
}

// kubeletReady asks the API server, with the kubelet's own kubeconfig, whether the kubelet has reported
// itself Ready since a time. The Node has whole seconds; a Lease, which the kubelet renews, has more.
func kubeletReady(ctx context.Context, kubeconfig, node string, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	var n struct {
		Status struct {
			Conditions []struct {
				Type, Status, Message string
				LastHeartbeatTime     time.Time
			}
		}
	}
	if err := getJSON(ctx, config, "/api/v1/nodes/"+node, &n); err != nil {
		return err
	}
	ready := errors.New("the Node has no condition Ready")
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type != "Ready":
		case c.Status != "True":
			ready = fmt.Errorf("the Node is not Ready: %s", refusal.Text(c.Message))
		case c.LastHeartbeatTime.Before(since.Truncate(time.Second)):
			ready = errors.New("the kubelet has not reported its state since it was restarted")
		default:
			ready = nil
		}
	}
	if ready != nil {
		return ready
	}
	var lease struct {
		Spec struct{ RenewTime time.Time }
	}
	if err := getJSON(ctx, config, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+node, &lease); err != nil {
		return err
	}
	if !lease.Spec.RenewTime.After(since) {
		return errors.New("the kubelet has not renewed its Lease since it was restarted")
	}
	return nil
}

// getJSON reads an object.
func getJSON(ctx context.Context, config *rest.Config, path string, into any) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, nil)
	if err != nil {
		return err
	}
	got, err := client.Do(r)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(got.Body, maxNode+1))
	if err = errors.Join(err, got.Body.Close()); err != nil {
		return err
	}
	if got.StatusCode != http.StatusOK || len(text) > maxNode {
		return fmt.Errorf("%s: the API server answers %s with %d bytes", path, refusal.Text(got.Status), len(text))
	}
	return json.Unmarshal(text, into)
}
