package kubeadmpatch

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	strictjson "sigs.k8s.io/json"

	"github.com/nodeattest/nodeattest/externalsigner/internal/document"
)

// server is the name of the Pod's container and of the program in it.
const server = "kube-apiserver"

// The flags of kube-apiserver that are about the keys of service accounts. The endpoint excludes the two
// for files (pkg/kubeapiserver/options/authentication.go in k8s.io/kubernetes).
const (
	endpointFlag   = "service-account-signing-endpoint"
	signingKeyFlag = "service-account-signing-key-file"
	keyFileFlag    = "service-account-key-file"
	issuerFlag     = "service-account-issuer"
	lifetimeFlag   = "service-account-max-token-expiration"
)

// A manifest is kube-apiserver's static Pod, of which only these fields are read.
type manifest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		InitContainers []struct{}  `json:"initContainers"`
		Containers     []container `json:"containers"`
		Volumes        []struct {
			Name string `json:"name"`
		} `json:"volumes"`
	} `json:"spec"`
}

type container struct {
	Name         string   `json:"name"`
	Image        string   `json:"image"`
	Command      []string `json:"command"`
	Args         []string `json:"args"`
	VolumeMounts []struct {
		Name      string `json:"name"`
		MountPath string `json:"mountPath"`
	} `json:"volumeMounts"`
}

// parseManifest reads a manifest as kubeadm renders it: a Pod with one container, whose command is
// kube-apiserver with all its flags. Names of fields are compared with their case.
func parseManifest(text []byte) (*manifest, error) {
	text, err := document.JSON(text)
	if err != nil {
		return nil, err
	}
	m := new(manifest)
	if err := strictjson.UnmarshalCaseSensitivePreserveInts(text, m); err != nil {
		return nil, err
	}
	if m.APIVersion != "v1" || m.Kind != "Pod" {
		return nil, fmt.Errorf("got apiVersion %q and kind %q, want v1 and Pod", m.APIVersion, m.Kind)
	}
	if n := len(m.Spec.Containers) + len(m.Spec.InitContainers); len(m.Spec.Containers) == 0 || n != 1 {
		return nil, fmt.Errorf("got %d containers, want 1, %s", n, server)
	}
	c := &m.Spec.Containers[0]
	switch {
	case c.Name != server:
		return nil, fmt.Errorf("got the container %q, want %s", c.Name, server)
	case len(c.Command) == 0 || path.Base(c.Command[0]) != server:
		return nil, fmt.Errorf("got the command %q, want one that begins with %s", c.Command[:min(1, len(c.Command))], server)
	case len(c.Args) != 0:
		return nil, errors.New("got args in addition to command, want all flags in command, as kubeadm writes them")
	case slices.Contains(c.Command, "--"):
		return nil, errors.New(`got "--" in command, want flags only`)
	case len(c.VolumeMounts) == 0 || len(m.Spec.Volumes) == 0:
		return nil, errors.New("got no volumes, or no mounts of them, want those that kubeadm writes")
	}
	return m, nil
}

// A flagged is a flag in a command: the elements from first to last, of which last is the value's if that
// stands alone.
type flagged struct {
	first, last int
	value       string
}

// find returns where a flag stands in the command, in order. A value follows an equals sign or is the next
// element, and an underscore in a name means a hyphen, as kube-apiserver has it.
func (c *container) find(flag string) (all []flagged, err error) {
	for n := 1; n < len(c.Command); n++ {
		name, value, has := strings.Cut(c.Command[n], "=")
		name, ok := strings.CutPrefix(name, "--")
		if !ok || strings.ReplaceAll(name, "_", "-") != flag {
			continue
		}
		at := flagged{first: n, last: n, value: value}
		if !has {
			if n++; n == len(c.Command) {
				return nil, fmt.Errorf("--%s is the last element of command, want a value after it", flag)
			}
			at.last, at.value = n, c.Command[n]
		}
		all = append(all, at)
	}
	return all, nil
}
