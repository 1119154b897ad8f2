package bootstrap

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/kube/internal/clusterinfo"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
)

// tokenSecret is the secret half of every token here.
const tokenSecret = "0123456789abcdef"

var errConflict = apierrors.NewConflict(schema.GroupResource{}, "cluster-info", nil)

// epoch is when each test begins.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// A world is an API server with a clock, and the log, Events and metrics of a controller.
type world struct {
	*objectstore.Store
	now      time.Time
	ctx      context.Context
	log      bytes.Buffer
	events   *events.FakeRecorder
	registry *prometheus.Registry
	reporter *reporter
}

func newWorld(t *testing.T, controller string) *world {
	t.Helper()
	w := &world{Store: objectstore.New(), now: epoch, events: events.NewFakeRecorder(100), registry: prometheus.NewRegistry()}
	w.ctx = log.IntoContext(t.Context(), logr.FromSlogHandler(slog.NewTextHandler(&w.log, nil)))
	var err error
	if w.reporter, err = newReporter(controller, w.events, w.registry); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if strings.Contains(w.log.String(), tokenSecret) {
			t.Errorf("the log has a token's secret:\n%s", w.log.String())
		}
	})
	return w
}

func (w *world) clock() time.Time { return w.now }

// token stores a token's Secret; change may change it, "" means no expiration.
func (w *world) token(t *testing.T, id, expiration string, change ...func(s *corev1.Secret)) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id}, Type: corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{"token-id": []byte(id), "token-secret": []byte(tokenSecret), "usage-bootstrap-signing": []byte("true")}}
	if expiration != "" {
		s.Data["expiration"] = []byte(expiration)
	}
	for _, f := range change {
		f(s)
	}
	if err := w.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return s
}

// after is an expiration.
func after(d time.Duration) string { return epoch.Add(d).Format(time.RFC3339) }

// info stores cluster-info.
func (w *world) info(t *testing.T, data map[string]string) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: clusterinfo.Key().Namespace, Name: clusterinfo.Key().Name, Labels: map[string]string{"kept": "yes"}}, Data: data}
	if err := w.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// data reads cluster-info.
func (w *world) data(t *testing.T) map[string]string {
	t.Helper()
	var object corev1.ConfigMap
	if err := w.Client.Get(t.Context(), clusterinfo.Key(), &object); err != nil {
		t.Fatal(err)
	}
	if object.Labels["kept"] != "yes" {
		t.Errorf("the labels are %v", object.Labels)
	}
	return object.Data
}

// has reports whether a Secret is stored.
func (w *world) has(t *testing.T, s *corev1.Secret) bool {
	t.Helper()
	err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(s), new(corev1.Secret))
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

// told returns the Events so far.
func (w *world) told() (all []string) {
	for {
		select {
		case e := <-w.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// value is a metric's, with the value of its label result, if it has one.
func (w *world) value(t *testing.T, name, result string) float64 {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && (result == "" || l.GetName() == "result" && l.GetValue() == result) {
					return m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

// writes is how many writes there were since the last call.
func (w *world) writes() int {
	_, n := w.Counts()
	return n
}
