package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// A box is a private machine that can be started again: it has mounts, a network, a name and
// processes of its own, and systemd as its first process, with only the units that a test
// puts there. Files below /etc, /var, /usr/bin, /usr/local and /usr/libexec stays
// until the test ends, on the disk of the test's folder, and /run is new after each start.
type box struct {
	name, dir string
	groups    *groups
	disk      *process // holds the mounts, the network and the name
	machine   *process // from one start to the next
	pid       string   // of its systemd, as seen from outside
	wires     []func()
}

// boxNeeds skips a test for which there can be no box here, and chooses the version of the control
// groups of those that can.
func boxNeeds(t *testing.T, prefer int) *groups {
	t.Helper()
	kubeletNeeds(t)
	for _, program := range []string{"/lib/systemd/systemd", "systemctl", "nsenter", "ip", "mount"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("a machine of its own takes %s: %v", program, err)
		}
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(t.TempDir(), &disk); err != nil || disk.Type == unix.OVERLAYFS_SUPER_MAGIC {
		t.Skipf("a machine of its own takes a TMPDIR outside a container's overlay, over which there can be no other: %v", err)
	}
	return groupsHere(t, prefer)
}

// boxDisk lays out the machine. Its arguments are a folder and the machine's name.
const boxDisk = `set -e
dir=$1
mount --make-rprivate /
hostname "$2"
ip link set lo up
ip link add eth0 type veth peer name eth0p
ip link set eth0p up
ip link set eth0 up
ip addr add 192.0.2.10/24 dev eth0
ip route add default via 192.0.2.1
mkdir "$dir/disk"
mount --bind "$dir/disk" /srv # services with PrivateTmp see it there
for folder in etc var usr/bin usr/local usr/libexec; do
	mkdir -p "/srv/$folder/upper" "/srv/$folder/work"
	mount -t overlay -o "lowerdir=/$folder,upperdir=/srv/$folder/upper,workdir=/srv/$folder/work" none "/$folder"
done
for folder in /etc/init.d /etc/systemd/system /usr/lib/systemd/system /var/log; do mount -t tmpfs none "$folder"; done
for target in sysinit basic multi-user network-online default shutdown network local-fs timers sockets paths slices umount final rescue emergency; do
	printf '[Unit]\nDescription=%s\nDefaultDependencies=no\n' "$target" >"/usr/lib/systemd/system/$target.target"
done
printf 'Wants=multi-user.target\nAfter=multi-user.target\n' >>/usr/lib/systemd/system/default.target
echo "$2" >/etc/hostname
mkdir -p /etc/kubernetes /var/lib/kubelet
touch "$dir/laid"
exec sleep infinity
`

// boxStart starts the machine, in the namespaces of its disk. Its arguments are the name of the machine's
// control groups; the scripts groups.enter, groups.own and the one that ends in systemd; and the last
// one's two arguments.
const boxStart = `set -e
export group=$1
eval "$2"
exec unshare -m -p -f --kill-child --mount-proc bash -c '
set -e
eval "$1"
exec unshare -C bash -c "$2" bash "$3" "$4"
' bash "$3" "$4" "$5" "$6"
`

// boxMounts and boxSystemd, with groups.mount between them, are the script of the machine's first
// process. Its arguments are the machine's folder and that of the TPM's socket.
const (
	boxMounts = `set -e
mount --make-rprivate /
mount -t tmpfs none /run
mkdir -p /run/systemd/system /run/lock /run/tpm /run/sysctl
mount --bind "$2" /run/tpm
umount -R /sys/fs/cgroup
`
	boxSystemd = `# The kernel has its settings as the kubelet wants them, and those outside are left alone.
printf 1 >/run/sysctl/overcommit
printf 10 >/run/sysctl/panic
printf 1 >/run/sysctl/oops
printf 1 >/run/sysctl/forward
mount --bind /run/sysctl/overcommit /proc/sys/vm/overcommit_memory
mount --bind /run/sysctl/panic /proc/sys/kernel/panic
mount --bind /run/sysctl/oops /proc/sys/kernel/panic_on_oops
mount --bind /run/sysctl/forward /proc/sys/net/ipv4/ip_forward
# There is no journal.
for unit in kubelet kubelet-authenticator; do
	mkdir "/run/systemd/system/$unit.service.d"
	printf "[Service]\nStandardOutput=append:%s\nStandardError=append:%s\n" "$1/$unit.log" "$1/$unit.log" >"/run/systemd/system/$unit.service.d/zz-log.conf"
done
export container=test
exec /lib/systemd/systemd --system --unit=default.target --log-target=console --show-status=0 --log-level=info
`
)

// startBox makes a machine with a TPM, whose socket is the file's of the same name in /run/tpm,
// and starts it.
func startBox(t *testing.T, name string, g *groups, tpm string) *box {
	t.Helper()
	b := &box{name: name, dir: mounttest.Disk(t), groups: g}
	b.disk = startAs(t, "disk", "unshare", b.dir, "-m", "-n", "-u", "bash", "-c", boxDisk, "bash", b.dir, name)
	b.disk.ready(t, func() error {
		_, err := os.Stat(filepath.Join(b.dir, "laid"))
		return err
	})
	disk := []string{"-t", fmt.Sprint(b.disk.cmd.Process.Pid), "-m", "-n", "-u", "bash", "-c"}
	t.Cleanup(func() {
		eventually(t, func() error { // as soon as the kernel has buried what ran
			out, err := exec.Command("nsenter", append(disk, "shopt -s nullglob; left=("+g.roots+"/"+b.group()+`/); [ -z "${left[*]}" ] || find "${left[@]}" -depth -type d -exec rmdir {} +`)...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	})
	b.machine = startAs(t, "machine", "nsenter", b.dir, append(disk, boxStart, "bash", b.group(), g.enter, g.own, boxMounts+g.mount+boxSystemd, b.dir, filepath.Dir(tpm))...)
	t.Cleanup(func() {
		b.off(t)
		for _, cut := range b.wires {
			cut()
		}
	})
	b.up(t)
	t.Logf("control groups of version %d, controllers %q", g.version, strings.Fields(b.run(t, "cat /sys/fs/cgroup/cgroup.controllers 2>/dev/null || ls /sys/fs/cgroup")))
	return b
}

// group is the name of the machine's control groups.
func (b *box) group() string {
	return "nodeattest-" + filepath.Base(filepath.Dir(b.dir)) + "-" + b.name
}

// up waits until systemd has started.
func (b *box) up(t *testing.T) {
	t.Helper()
	b.machine.ready(t, func() error {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", b.machine.cmd.Process.Pid))
		if err != nil {
			return err
		}
		b.pid = strings.TrimSpace(string(children))
		if name, err := os.ReadFile("/proc/" + b.pid + "/comm"); string(name) != "systemd\n" {
			return fmt.Errorf("%w: its first process is %q, %w", errNotYet, name, err)
		}
		out, err := b.command(context.Background(), "systemctl is-system-running").CombinedOutput()
		switch state := strings.TrimSpace(string(out)); state {
		case "initializing", "starting", "running", "degraded": // which units have started is the test's to judge
			return nil
		default:
			return fmt.Errorf("systemd is %q: %w", state, errors.Join(errNotYet, err))
		}
	})
}

// off takes the machine's power away.
func (b *box) off(t *testing.T) {
	t.Helper()
	if !b.machine.ended() {
		b.machine.kill(t) // and with it its children
	}
}

// on starts the machine again.
func (b *box) on(t *testing.T) {
	t.Helper()
	if err := b.machine.launch(); err != nil {
		t.Fatal(err)
	}
	b.up(t)
}

// command is a command of a shell on the machine.
func (b *box) command(ctx context.Context, script string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", "-t", b.pid, "-a", "bash", "-c", "set -e\nexport HOME=/run\n"+script)
}

// run runs a script on the machine, which must succeed, and returns its output.
func (b *box) run(t *testing.T, script string) string {
	t.Helper()
	out, err := b.command(t.Context(), script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// put writes a file on the machine.
func (b *box) put(t *testing.T, path string, mode os.FileMode, text []byte) {
	t.Helper()
	cmd := b.command(t.Context(), fmt.Sprintf("mkdir -p %s; cat >%s; chmod %o %s", filepath.Dir(path), path, mode, path))
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", path, err, out)
	}
}

// log is the log of a unit.
func (b *box) log(unit string) string {
	return string(controlplane.Tail(filepath.Join(b.dir, unit+".log")))
}
