package kube

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/test/controlplane"
)

// The files of containerd on a machine, and of its network: each pod has a wire to the machine, and the
// other machines' pods are behind these machines' addresses. The folder of the box does not lie over
// another one, over which containerd could put no layers.
const (
	containerdSocket = "unix:///run/containerd/containerd.sock"
	containerdConfig = `version = 2
root = "%[1]s/containerd"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "%[2]s"
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "%[1]s/cni"
conf_dir = "/etc/cni/net.d"
`
	containerdUnit = `[Unit]
Description=containerd
Before=kubelet.service

[Service]
ExecStart=/usr/bin/containerd
StandardOutput=append:%[1]s/containerd.log
StandardError=append:%[1]s/containerd.log
Delegate=yes
KillMode=process
Restart=always
LimitNOFILE=infinity

[Install]
WantedBy=multi-user.target
`
	cniConfig = `{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "wire", "gateway": "10.244.%d.1"}]}
`
	cniPlugin = `#!/bin/bash
# wire, and loopback, which containerd calls first.
set -e
PATH=/usr/sbin:/usr/bin:/sbin:/bin
gateway=$(grep -o '"gateway": *"[0-9.]*' | grep -o '[0-9.]*$' || true)
case $CNI_COMMAND in
VERSION)
	echo '{"cniVersion": "0.4.0", "supportedVersions": ["0.3.1", "0.4.0"]}'
	exit
	;;
ADD) ;;
*) exit ;;
esac
if [ "${0##*/}" = loopback ]; then
	nsenter --net="$CNI_NETNS" ip link set lo up
	echo '{"cniVersion": "0.4.0", "interfaces": [{"name": "lo", "sandbox": "'"$CNI_NETNS"'"}], "ips": []}'
	exit
fi
exec 9>/run/cni.lock
flock 9
n=$(($(cat /run/cni.last 2>/dev/null || echo 1) + 1))
echo $n >/run/cni.last
ip=${gateway%.*}.$n
ip link add "pod$n" type veth peer name "$CNI_IFNAME" netns "${CNI_NETNS##*/}"
ip addr add "$gateway/32" dev "pod$n"
ip link set "pod$n" up
ip route add "$ip/32" dev "pod$n"
nsenter --net="$CNI_NETNS" sh -e -c "ip addr add $ip/32 dev $CNI_IFNAME; ip link set $CNI_IFNAME up; ip route add $gateway dev $CNI_IFNAME; ip route add default via $gateway"
echo '{"cniVersion": "0.4.0", "interfaces": [{"name": "'"$CNI_IFNAME"'", "sandbox": "'"$CNI_NETNS"'"}], "ips": [{"version": "4", "interface": 0, "address": "'"$ip"'/32", "gateway": "'"$gateway"'"}]}'
`
)

// containerdNeeds skips a test for which there is no runtime here.
func containerdNeeds(t *testing.T) {
	t.Helper()
	for _, program := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("static pods take containerd and runc: %v", err)
		}
	}
}

// startContainerd starts containerd on a machine, as its number in the pods' network, with the image of
// a pod's sandbox.
func (b *box) startContainerd(t *testing.T, number int, sandbox string) {
	t.Helper()
	b.put(t, "/etc/containerd/config.toml", 0o644, fmt.Appendf(nil, containerdConfig, b.dir, sandbox))
	b.put(t, "/etc/systemd/system/containerd.service", 0o644, fmt.Appendf(nil, containerdUnit, b.dir))
	b.put(t, "/etc/cni/net.d/pods.conflist", 0o644, fmt.Appendf(nil, cniConfig, number))
	for _, plugin := range []string{"wire", "loopback"} {
		b.put(t, b.dir+"/cni/"+plugin, 0o755, []byte(cniPlugin))
	}
	b.run(t, "systemctl daemon-reload; systemctl enable --now containerd")
	eventually(t, func() error { return b.command(t.Context(), "ctr version").Run() })
	b.importImage(t, sandbox, buildPause(t))
}

// buildPause builds the program of a pod's sandbox.
func buildPause(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pause")
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, "./pause")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// importImage gives containerd an image of this name, with one program.
func (b *box) importImage(t *testing.T, name, program string) {
	t.Helper()
	in, out := io.Pipe()
	go func() { out.CloseWithError(writeImage(out, name, program)) }()
	b.importArchive(t, name, in)
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
}

// importArchive gives containerd the image in an archive.
func (b *box) importArchive(t *testing.T, name string, archive io.Reader) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := b.command(ctx, "ctr --namespace k8s.io images import --digests=false -")
	cmd.Stdin, cmd.WaitDelay = archive, time.Second
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, text)
	}
}

// imageNames returns the names that the kubeadm of a folder has for a control plane's images.
func imageNames(t *testing.T, folder string) []string {
	t.Helper()
	kubeadm := filepath.Join(folder, "kubeadm")
	version, err := exec.Command(kubeadm, "version", "-o", "short").Output()
	if err != nil {
		t.Fatal(err)
	}
	names, err := exec.Command(kubeadm, "config", "images", "list", "--kubernetes-version", strings.TrimSpace(string(version))).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(names))
}

// importKubernetes gives containerd the images of a control plane, with the programs of a folder.
func (b *box) importKubernetes(t *testing.T, folder string) {
	t.Helper()
	for _, name := range imageNames(t, folder) {
		program := filepath.Join(folder, filepath.Base(strings.Split(name, ":")[0]))
		if _, err := os.Stat(program); err == nil {
			b.importImage(t, name, program)
		}
	}
}

// sandboxImage is the name that kubeadm has for the image of a pod's sandbox.
func sandboxImage(t *testing.T) string {
	t.Helper()
	names := imageNames(t, controlplane.Binaries(t))
	i := slices.IndexFunc(names, func(name string) bool { return strings.Contains(name, "/pause:") })
	if i < 0 {
		t.Fatalf("no image of a sandbox: %q", names)
	}
	return names[i]
}

// writeImage writes an archive such as docker save writes: an image with one program, which runs as
// root and is found by its name.
func writeImage(w io.Writer, name, program string) error {
	text, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	path := "usr/local/bin/" + filepath.Base(program)
	var layer bytes.Buffer
	files := []imageFile{{"usr/", nil}, {"usr/local/", nil}, {"usr/local/bin/", nil}, {path, text}}
	if err := writeTar(&layer, files...); err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Env": []string{"PATH=/usr/local/bin"}, "Entrypoint": []string{"/" + path}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer.Bytes()))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	return writeTar(w, imageFile{"config.json", config}, imageFile{"layer.tar", layer.Bytes()}, imageFile{"manifest.json", manifest})
}

// imageFile is a file or, with a name that ends in a slash, a folder of an archive.
type imageFile struct {
	name string
	text []byte
}

func writeTar(w io.Writer, files ...imageFile) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		if err := archive.WriteHeader(&tar.Header{Name: f.name, Size: int64(len(f.text)), Mode: 0o755}); err != nil {
			return err
		}
		if _, err := archive.Write(f.text); err != nil {
			return err
		}
	}
	return archive.Close()
}
