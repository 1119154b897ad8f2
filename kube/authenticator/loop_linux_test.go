package authenticator

import (
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
)

// TestNoDisk: where no pause can be recorded it is kept in memory, and the node has its
// certificate once there is room again.
func TestNoDisk(t *testing.T) {
	if !mounttest.Enter(t) {
		return
	}
	for fault, c := range map[string]struct {
		breaks, mends func(d *mounttest.SmallDisk)
	}{
		"full":      {(*mounttest.SmallDisk).Fill, (*mounttest.SmallDisk).Empty},
		"read-only": {func(d *mounttest.SmallDisk) { d.ReadOnly(true) }, func(d *mounttest.SmallDisk) { d.ReadOnly(false) }},
	} {
		for name, row := range map[string]struct {
			as     role
			denies bool // the control plane
			has    bool // a certificate that is due
		}{
			"daemon, admitted":            {as: role{daemon: true}},
			"daemon, denied":              {as: role{daemon: true}, denies: true},
			"daemon with one that is due": {as: role{daemon: true}, has: true},
			"plugin, denied":              {as: role{plugin: true}, denies: true},
			"plugin with one that is due": {as: role{plugin: true}, has: true},
		} {
			if fault == "read-only" && row.as.plugin && !row.has {
				continue // without a lock it ends at once
			}
			t.Run(fault+", "+name, func(t *testing.T) {
				disk := mounttest.NewSmallDisk(t, 64<<10)
				f := newFakeAPI(t)
				a, _, _, _ := steps(t, f, 0, row.as, func(o *Config) { o.Dir = disk.Path("state") })
				if row.has {
					if err := a.Rotate(t.Context()); err != nil {
						t.Fatal(err)
					}
					f.move(a.stored(ClientFile).Renew.Add(time.Second))
				}
				c.breaks(disk)
				if row.denies {
					f.set(func() {
						f.decide = func(o *certificatesv1.CertificateSigningRequest) bool {
							condition(o, "Denied", "MachineUnknown", "machine-unknown")
							return true
						}
					})
				}
				log, filed := &lines{t: t}, f.calls("create")
				a = relog(t, a, log)
				began, took := f.now(), time.Duration(0)
				a.c.Now = func() time.Time { return began.Add(took) }
				for took < 6*time.Second {
					s, _ := a.view(row.as).take(t.Context(), a.items[0])
					took += max(s.at.Sub(began.Add(took)), lookPause)
					if row.has && s.use == nil {
						t.Fatal("the certificate that works is gone")
					}
				}
				if n := f.calls("create") - filed; n > 5 {
					t.Errorf("%d requests in %s", n, took)
				}
				if n := log.count(); n > 20 {
					t.Errorf("%d lines in %s", n, took)
				}
				c.mends(disk)
				f.set(func() { f.decide = nil })
				took += lastDenied
				f.move(began.Add(took))
				if s, err := a.view(row.as).take(t.Context(), a.items[0]); err != nil || s.do != wait || s.use == nil || a.stored(ClientFile) == nil {
					t.Errorf("once there is room: %v", err)
				}
			})
		}
	}
}
