package authenticator

import (
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/nodeattest/nodeattest/internal/testkit"
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
			as     caller
			denies bool // the control plane
			has    bool // a certificate that is due
		}{
			"daemon, admitted":            {as: caller{daemon: true}},
			"daemon, denied":              {as: caller{daemon: true}, denies: true},
			"daemon with one that is due": {as: caller{daemon: true}, has: true},
			"plugin, denied":              {as: caller{plugin: true}, denies: true},
			"plugin with one that is due": {as: caller{plugin: true}, has: true},
		} {
			if fault == "read-only" && row.as.plugin && !row.has {
				continue // without a lock it ends at once
			}
			t.Run(fault+", "+name, func(t *testing.T) {
				disk := mounttest.NewSmallDisk(t, 64<<10)
				f := newFakeAPI(t)
				a, _, _, _ := steps(t, f, 0, row.as, func(o *Config) { o.Dir = disk.Path("state") })
				if row.has {
					testkit.MustDo(a.Rotate(t.Context()))
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
				a.config.Now = func() time.Time { return began.Add(took) }
				for took < 6*time.Second {
					s, _ := a.snapshot(row.as).runStep(t.Context(), a.slots[0])
					took += max(s.at.Sub(began.Add(took)), minSleep)
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
				if s, err := a.snapshot(row.as).runStep(t.Context(), a.slots[0]); err != nil || s.do != wait || s.use == nil || a.stored(ClientFile) == nil {
					t.Errorf("once there is room: %v", err)
				}
			})
		}
	}
}
