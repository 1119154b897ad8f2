package kubeadmpatch

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// maxSocket is the maximum length of a socket's path in bytes: sun_path of unix(7) without its zero.
const maxSocket = 107

// An operation is one of a JSON patch (RFC 6902, section 4).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Paths of a JSON patch in the manifest; "-" is the end of a list.
const (
	containerPath = "/spec/containers/0"
	commandPath   = containerPath + "/command/"
)

// makePatch returns the patch, a JSON patch in YAML, of a manifest for the socket of an external signer.
// A flag is taken out at its position, after a test that it stands there, so that kubeadm refuses the patch for
// a manifest whose flags have moved.
func makePatch(text []byte, socket string) ([]byte, error) {
	folder, err := checkSocket(socket)
	if err != nil {
		return nil, err
	}
	m, err := parseManifest(text)
	if err != nil {
		return nil, err
	}
	c := &m.Spec.Containers[0]
	found, err := c.keyFiles()
	if err != nil {
		return nil, err
	}
	if err := m.checkVolume(folder); err != nil {
		return nil, err
	}
	issuers, err := c.find(issuerFlag)
	if err != nil {
		return nil, err
	}
	if len(issuers) == 0 {
		return nil, errors.New("no --" + issuerFlag + " in command, want the issuer that the signer signs for")
	}
	patch := []operation{{Op: "test", Path: containerPath + "/name", Value: server}}
	for _, n := range slices.Backward(found) { // from the end, so that no other element moves before its turn
		at := commandPath + strconv.Itoa(n)
		patch = append(patch, operation{Op: "test", Path: at, Value: c.Command[n]}, operation{Op: "remove", Path: at})
	}
	patch = append(patch,
		operation{Op: "add", Path: commandPath + "-", Value: "--" + endpointFlag + "=" + socket},
		operation{Op: "add", Path: containerPath + "/volumeMounts/-", Value: map[string]any{"name": volume, "mountPath": folder, "readOnly": true}},
		operation{Op: "add", Path: "/spec/volumes/-", Value: map[string]any{"name": volume, "hostPath": map[string]any{"path": folder, "type": "Directory"}}},
	)
	body, err := yaml.Marshal(patch)
	if err != nil {
		return nil, err
	}
	head := fmt.Appendf(nil, header, c.Image, issuers[0].value)
	longest, err := c.find(lifetimeFlag)
	if err != nil {
		return nil, err
	}
	if len(longest) != 0 { // with less, kube-apiserver does not start
		head = fmt.Appendf(head, lifetimeHeader, longest[len(longest)-1].value)
	}
	return append(head, body...), nil
}

// header are the comments above a patch.
const header = `# For kubeadm's --patches: kube-apiserver signs service-account tokens at the socket of
# external-jwt-signer. Keep it as kube-apiserver-external-jwt-signer+json.yaml in the folder of patches.
# Made from a manifest of the image %q. If kubeadm says
# that testing a value failed, flags have moved: make the patch again, of a manifest that is rendered
# without it.
# The signer's configuration needs issuer: %q
`

// lifetimeHeader follows header if the manifest has a longest lifetime of tokens.
const lifetimeHeader = "# and maxLifetime: %q or more\n"

// keyFiles returns the positions of the flags for files with keys and of their values, in order.
func (c *container) keyFiles() (positions []int, err error) {
	there, err := c.find(endpointFlag)
	if err != nil {
		return nil, err
	}
	if len(there) != 0 {
		return nil, fmt.Errorf("--%s=%s is in command already: render the manifest without this patch", endpointFlag, there[0].value)
	}
	for _, flag := range []string{keyFileFlag, signingKeyFlag} {
		found, err := c.find(flag)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("no --%s in command, want the flags for files of a manifest that kubeadm rendered", flag)
		}
		for _, at := range found {
			for n := at.first; n <= at.last; n++ {
				positions = append(positions, n)
			}
		}
	}
	slices.Sort(positions)
	return slices.Compact(positions), nil
}

// volume is the name of the volume with the socket's folder.
const volume = "external-jwt-signer"

// checkVolume refuses a folder that the manifest's volumes are in the way of.
func (m *manifest) checkVolume(folder string) error {
	for _, v := range m.Spec.Volumes {
		if v.Name == volume {
			return fmt.Errorf("the volume %s is there already: render the manifest without it", volume)
		}
	}
	for _, mount := range m.Spec.Containers[0].VolumeMounts {
		if other := path.Clean(mount.MountPath); within(folder, other) || within(other, folder) {
			return fmt.Errorf("the socket's folder %s and the mount %s of the volume %q contain one another, want a folder of its own",
				folder, mount.MountPath, mount.Name)
		}
	}
	return nil
}

// within reports whether a clean path is a folder or in it.
func within(name, folder string) bool {
	return name == folder || strings.HasPrefix(name, strings.TrimSuffix(folder, "/")+"/")
}

// checkSocket returns the folder of a socket, which is mounted into the Pod whole: a socket file that is
// mounted alone is the old one after the signer has made another.
func checkSocket(socket string) (folder string, err error) {
	switch folder = path.Dir(socket); {
	case strings.HasPrefix(socket, "@"):
		return "", fmt.Errorf("--socket %q: got an abstract name, which no file mode guards, want the path of a socket", socket)
	case !path.IsAbs(socket) || path.Clean(socket) != socket || folder == "/":
		return "", fmt.Errorf("--socket %q: want an absolute path, in its shortest form, of a socket in a folder", socket)
	case len(socket) > maxSocket:
		return "", fmt.Errorf("--socket: got %d bytes, want at most %d", len(socket), maxSocket)
	case path.Dir(folder) == "/":
		return "", fmt.Errorf("--socket %q: got the folder %s, which others use, want a folder of its own, such as %s", socket, folder, path.Dir(defaultSocket))
	}
	return folder, nil
}
