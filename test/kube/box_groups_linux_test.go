package kube

import (
	"errors"
	"regexp"
	"testing"

	"github.com/nodeattest/nodeattest/test/controlplane"
)

// groups are the control groups of a box, of one version, as scripts in which dir is the box's folder
// and group the name of its groups.
type groups struct {
	version int
	// roots is a pattern of the folders in which the box has groups, on its disk.
	roots string
	// enter makes the box's groups, and moves the process into them that starts the box.
	enter string
	// own moves the box's first process, which becomes systemd, into the group that it sees as the root.
	own string
	// mount mounts that root at /sys/fs/cgroup.
	mount string
}

// With version 2, a group with processes hands no controllers down. So systemd has a group of its own,
// next to that of the processes which start it. The box has the controllers that the machine hands
// down: none where they belong to hierarchies of version 1, and in a container of Docker.
var (
	groupsV1 = &groups{version: 1, roots: "/sys/fs/cgroup/*", enter: `for root in /sys/fs/cgroup/*/; do
	[ -e "$root/cgroup.procs" ] || continue
	mkdir -p "$root/$group"
	for try in $(seq 100); do # those of before the power went, as soon as the kernel has buried what ran there
		find "$root/$group" -mindepth 1 -depth -type d -exec rmdir {} + 2>/dev/null && break
		sleep 0.1
	done
	if [ -e "$root/$group/cpuset.cpus" ]; then
		cat "$root/cpuset.cpus" >"$root/$group/cpuset.cpus"
		cat "$root/cpuset.mems" >"$root/$group/cpuset.mems"
	fi
	echo 0 >"$root/$group/cgroup.procs"
done
`, mount: `mount -t tmpfs none /sys/fs/cgroup
mkdir /sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd none /sys/fs/cgroup/systemd
for controller in cpu cpuacct cpuset memory devices freezer blkio pids; do
	mkdir "/sys/fs/cgroup/$controller"
	mount -t cgroup -o "$controller" none "/sys/fs/cgroup/$controller" || rmdir "/sys/fs/cgroup/$controller"
done
`}
	groupsV2 = &groups{version: 2, roots: "/srv/groups", enter: `root=/srv/groups
if [ ! -e "$root" ]; then
	mkdir "$root"
	mount -t cgroup2 none "$root"
fi
[ ! -e "$root/$group" ] || find "$root/$group" -mindepth 1 -depth -type d -exec rmdir {} +
mkdir -p "$root/$group/systemd" "$root/$group/start"
for controller in $(cat "$root/cgroup.subtree_control"); do
	echo "+$controller" >"$root/$group/cgroup.subtree_control"
done
echo 0 >"$root/$group/start/cgroup.procs"
`, own: `echo 0 >"/srv/groups/$group/systemd/cgroup.procs"
`, mount: `umount /srv/groups
mount -t cgroup2 none /sys/fs/cgroup
`}
)

var (
	errNoGroupsV2 = errors.New("control groups of version 2: the kernel has version 1 alone")
	errNoGroups   = errors.New("control groups: the kernel has no version 2, and systemd's hierarchy of version 1 is not mounted")
)

// chooseGroups chooses the control groups of a box, by the texts of /proc/filesystems and
// /proc/self/mounts. A test that prefers version 1 gets version 2 on machines without version 1, as most
// are. One that is about version 2 gets no other. A box mounts version 2 itself.
func chooseGroups(prefer int, filesystems, mounts string) (*groups, error) {
	v1 := regexp.MustCompile(`(?m)^\S+ /sys/fs/cgroup/systemd cgroup `).MatchString(mounts)
	v2 := regexp.MustCompile(`(?m)\tcgroup2$`).MatchString(filesystems)
	switch {
	case prefer == 1 && v1:
		return groupsV1, nil
	case v2:
		return groupsV2, nil
	case v1:
		return nil, errNoGroupsV2
	}
	return nil, errNoGroups
}

// groupsHere chooses the control groups of a box on this machine.
func groupsHere(t *testing.T, prefer int) *groups {
	t.Helper()
	g, err := chooseGroups(prefer, string(controlplane.Read(t, "/proc/filesystems")), string(controlplane.Read(t, "/proc/self/mounts")))
	if err != nil {
		t.Skipf("a machine of its own takes %v", err)
	}
	return g
}

// TestChooseGroups chooses the control groups of boxes as on other machines.
func TestChooseGroups(t *testing.T) {
	t.Parallel()
	const (
		old, both = "nodev\tproc\nnodev\tcgroup\n\text4\n", "nodev\tproc\nnodev\tcgroup\nnodev\tcgroup2\n\text4\n"
		legacy    = "proc /proc proc rw 0 0\ncgroup /sys/fs/cgroup/systemd cgroup rw,xattr,name=systemd 0 0\n"
		hybrid    = legacy + "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nsdelegate 0 0\n"
		unified   = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n"
		elsewhere = "cgroup2 /sys/fs/cgroup/systemd cgroup2 rw 0 0\n"
	)
	for name, row := range map[string]struct {
		filesystems, mounts string
		want1, want2        *groups
		err1, err2          error
	}{
		"version 1 alone":         {old, legacy, groupsV1, nil, nil, errNoGroupsV2},
		"version 1, 2 unused":     {both, legacy, groupsV1, groupsV2, nil, nil},
		"both":                    {both, hybrid, groupsV1, groupsV2, nil, nil},
		"version 2 alone":         {both, unified, groupsV2, groupsV2, nil, nil},
		"no hierarchy":            {both, "", groupsV2, groupsV2, nil, nil},
		"version 2 at that place": {both, elsewhere, groupsV2, groupsV2, nil, nil},
		"nothing":                 {old, "", nil, nil, errNoGroups, errNoGroups},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := chooseGroups(1, row.filesystems, row.mounts); got != row.want1 || !errors.Is(err, row.err1) {
				t.Errorf("preferring version 1, got %+v, %v", got, err)
			}
			if got, err := chooseGroups(2, row.filesystems, row.mounts); got != row.want2 || !errors.Is(err, row.err2) {
				t.Errorf("of version 2, got %+v, %v", got, err)
			}
		})
	}
}
