package authenticator

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
)

// TestFullState: the folder of the state is on a full or read-only disk, and that of the keys has
// room. The node renews; and where it is denied, no process forgets the pauses.
func TestFullState(t *testing.T) {
	if !mounttest.Enter(t) {
		return
	}
	for fault, breaks := range map[string]func(d *mounttest.SmallDisk){
		"full":      (*mounttest.SmallDisk).Fill,
		"read-only": func(d *mounttest.SmallDisk) { d.ReadOnly(true) },
	} {
		for name, as := range map[string]caller{"daemon": {daemon: true}, "plugin": {plugin: true}} {
			for _, denies := range []bool{false, true} {
				t.Run(fault+", "+name+map[bool]string{true: ", denied"}[denies], func(t *testing.T) {
					disk, keys := mounttest.NewSmallDisk(t, 64<<10), filepath.Join(t.TempDir(), "keys")
					f := newFakeAPI(t)
					a, _, _, _ := steps(t, f, 0, as, func(o *Config) { o.Dir, o.KeyDir = disk.Path("state"), keys })
					testkit.MustDo(a.Rotate(t.Context()))
					first := a.snapshot(as).certificates(a.slots[0]).have
					f.set(func() {
						f.noToken = true // that of the join has ended long ago
						if denies {
							f.decide = func(o *certificatesv1.CertificateSigningRequest) bool {
								condition(o, "Denied", "MachineUnknown", "machine-unknown")
								return true
							}
						}
					})
					breaks(disk)
					f.move(first.Renew.Add(time.Second))
					began, filed, log := f.now(), f.calls("create"), &lines{t: t}
					for range 20 { // each in a process of its own
						b := relog(t, a, log)
						b.config.Now = f.now
						s, err := b.snapshot(as).runStep(t.Context(), b.slots[0])
						if now := b.snapshot(as).certificates(b.slots[0]).have; !denies && (err != nil || now.Leaf.Equal(first.Leaf)) {
							t.Fatalf("not renewed: %v", err)
						}
						if s.use == nil {
							t.Fatal("the certificate that works is gone")
						}
						f.move(f.now().Add(time.Second))
					}
					n := f.calls("create") - filed
					if want := map[bool]int{false: 2, true: 5}[denies]; n == 0 || n > want {
						t.Errorf("%d requests in %s", n, f.now().Sub(began))
					}
					if log.count() > 60 {
						t.Errorf("%d lines", log.count())
					}
				})
			}
		}
	}
}

// TestFullKeys: where there is no room for a certificate none is asked for, the one in hand stays,
// and the status says why.
func TestFullKeys(t *testing.T) {
	if !mounttest.Enter(t) {
		return
	}
	for name, as := range map[string]caller{"daemon": {daemon: true}, "plugin": {plugin: true}} {
		t.Run(name, func(t *testing.T) {
			disk := mounttest.NewSmallDisk(t, 64<<10)
			f := newFakeAPI(t)
			a, _, _, _ := steps(t, f, 0, as, func(o *Config) { o.KeyDir = disk.Path("keys") })
			testkit.MustDo(a.Rotate(t.Context()))
			first := a.snapshot(as).certificates(a.slots[0]).have
			a.config.Now = f.now
			disk.Fill()
			f.move(first.Renew.Add(time.Second))
			filed := f.calls("create")
			s, err := a.snapshot(as).runStep(t.Context(), a.slots[0])
			if err == nil || s.use == nil || !s.use.Leaf.Equal(first.Leaf) || f.calls("create") != filed {
				t.Errorf("got %v after %d requests", err, f.calls("create")-filed)
			}
			var text bytes.Buffer
			if err := again(t, a).Status().Write(&text, f.now()); err != nil || !strings.Contains(text.String(), syscall.ENOSPC.Error()) {
				t.Errorf("%v; the status is %s", err, &text)
			}
			disk.Empty()
			f.move(f.now().Add(lastPause))
			if s, err := a.snapshot(as).runStep(t.Context(), a.slots[0]); err != nil || s.use.Leaf.Equal(first.Leaf) || s.do != wait {
				t.Errorf("once there is room: %v", err)
			}
		})
	}
}

// TestDaemonShowsNoLife: a daemon that cannot write into the folder of the state renews all the same,
// also after one that was killed; a second one does not run.
func TestDaemonShowsNoLife(t *testing.T) {
	if !mounttest.Enter(t) {
		return
	}
	for name, killed := range map[string]bool{"after none": false, "after one that was killed": true} {
		t.Run(name, func(t *testing.T) {
			disk, keys := mounttest.NewSmallDisk(t, 64<<10), filepath.Join(t.TempDir(), "keys")
			f := newFakeAPI(t)
			a, _ := newNode(t, f, func(o *Config) { o.Dir, o.KeyDir = disk.Path("state"), keys })
			testkit.MustDo(a.Rotate(t.Context()))
			if killed {
				testkit.MustDo(os.WriteFile(a.store.Path(daemonName+".held"), nil, 0o600))
			}
			first := a.snapshot(caller{}).certificates(a.slots[0]).have
			disk.ReadOnly(true)
			f.move(first.Renew)
			stop := run(t, a)
			eventually(t, "a new certificate", func() bool { return !a.snapshot(caller{}).certificates(a.slots[0]).have.Leaf.Equal(first.Leaf) })
			if killed {
				if err := again(t, a).Run(t.Context()); !errors.Is(err, certstore.ErrLocked) {
					t.Errorf("a second one: got %v", err)
				}
			}
			stop()
			disk.ReadOnly(false)
		})
	}
}
