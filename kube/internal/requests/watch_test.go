package requests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// apiServer lists requests by their signers, two at a time, and sends later ones.
type apiServer struct {
	listed, later map[string][]*certificatesv1.CertificateSigningRequest // by field selector
	fails         atomic.Bool                                            // lists fail
	lists         atomic.Int32                                           // first pages
	expires       atomic.Bool                                            // the next page of a list that has begun is gone
	watched       func()                                                 // is called before a watch is opened, if it is not nil
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/apis/certificates.k8s.io/v1/certificatesigningrequests" {
		http.NotFound(w, r)
		return
	}
	query := r.URL.Query()
	selector := query.Get("fieldSelector")
	w.Header().Set("Content-Type", "application/json")
	kind := metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"}
	encoder := json.NewEncoder(w)
	if query.Get("watch") == "" {
		if s.fails.Load() {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		list := certificatesv1.CertificateSigningRequestList{TypeMeta: metav1.TypeMeta{APIVersion: kind.APIVersion, Kind: kind.Kind + "List"}}
		list.ResourceVersion = "1"
		first, _ := strconv.Atoi(query.Get("continue"))
		if first == 0 {
			s.lists.Add(1)
		}
		if first != 0 && s.expires.CompareAndSwap(true, false) {
			gone := apierrors.NewResourceExpired("gone").ErrStatus
			gone.TypeMeta, gone.Continue = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, query.Get("continue")
			w.WriteHeader(http.StatusGone)
			_ = encoder.Encode(&gone)
			return
		}
		for i, o := range s.listed[selector][first:] {
			if i == 2 {
				list.Continue = strconv.Itoa(first + 2)
				break
			}
			list.Items = append(list.Items, *o)
		}
		_ = encoder.Encode(&list)
		return
	}
	if s.watched != nil {
		s.watched()
	}
	for _, o := range s.later[selector] {
		o.TypeMeta = kind
		_ = encoder.Encode(map[string]any{"type": "ADDED", "object": o})
	}
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// newManager returns the manager of a cluster that has this API server.
func newManager(t *testing.T, api *apiServer) manager.Manager {
	t.Helper()
	web := httptest.NewServer(api)
	t.Cleanup(web.Close)
	scheme := runtime.NewScheme()
	testkit.MustDo(certificatesv1.AddToScheme(scheme))
	m, err := manager.New(&rest.Config{Host: web.URL}, manager.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{CacheSyncTimeout: 1}, // a list takes longer
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestWatch has a manager look at listed and at later requests, for each signer separately: once at a
// request that is decided, again after a failure, and never at a finished one.
func TestWatch(t *testing.T) {
	const other = "example.com/other"
	api := &apiServer{
		listed: map[string][]*certificatesv1.CertificateSigningRequest{
			"spec.signerName=" + builtIn: {request("listed", builtIn, ""), request("signed", builtIn, "c"), request("denied", builtIn, "", certificatesv1.CertificateDenied)},
			"spec.signerName=" + ours:    {request("signed", ours, "c")},
		},
		later: map[string][]*certificatesv1.CertificateSigningRequest{
			"spec.signerName=" + ours:  {request("later", ours, "")},
			"spec.signerName=" + other: {request("of others", other, "")},
		},
	}
	m := newManager(t, api)
	var (
		mu      sync.Mutex
		watched *Watched
		err     error
		looks   = map[Key]int{}
	)
	want := map[Key]int{{SignerName: builtIn, Name: "listed"}: 2, {SignerName: builtIn, Name: "signed"}: 1, {SignerName: ours, Name: "later"}: 1}
	done := make(chan struct{})
	watched, err = Watch(m, []string{builtIn, ours}, Options{Name: "test", Workers: 2, Done: NewRecent()}, func(ctx context.Context, key Key) (reconcile.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		if o, err := watched.Get(ctx, key); err != nil || o == nil || o.Spec.SignerName != key.SignerName {
			t.Errorf("%v: %v, %+v", key, err, o)
		}
		looks[key]++
		left := 0
		for key, n := range want {
			left += max(0, n-looks[key])
		}
		if left == 0 {
			select {
			case <-done:
			default:
				close(done)
			}
		}
		if looks[key] < want[key] {
			return reconcile.Result{}, errors.New("not yet")
		}
		return reconcile.Result{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := watched.Check(nil); err != nil {
		t.Errorf("before it leads: %v", err)
	}
	run(t, m, done, func() {
		if err := watched.Check(nil); err != nil {
			t.Errorf("while it looks: %v", err)
		}
	})
	for key, n := range looks {
		if n != want[key] {
			t.Errorf("%v: %d looks, want %d", key, n, want[key])
		}
	}
	for key := range want {
		if o, err := watched.Get(t.Context(), key); err != nil || o != nil {
			t.Errorf("%v is kept: %v, %+v", key, err, o)
		}
	}
}

// TestWatchPanics has a request looked at whose kind of evidence or authorizer panics: it is looked at
// again, and so are the others.
func TestWatchPanics(t *testing.T) {
	api := &apiServer{listed: map[string][]*certificatesv1.CertificateSigningRequest{
		"spec.signerName=" + ours: {request("panics", ours, ""), request("honest", ours, "")},
	}}
	m, done := newManager(t, api), make(chan struct{})
	var panics atomic.Int32
	_, err := Watch(m, []string{ours}, Options{Name: "panics", Workers: 1, Done: NewRecent()}, func(_ context.Context, key Key) (reconcile.Result, error) {
		if key.Name == "panics" && panics.Add(1) < 3 {
			panic("a bug of a kind")
		}
		if key.Name == "panics" {
			close(done)
		}
		return reconcile.Result{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, m, done, func() {})
}

// run runs a manager until something is done, and does something more before it ends.
func run(t *testing.T, m manager.Manager, done <-chan struct{}, then func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	select {
	case <-done:
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Error("not all were looked at")
	}
	then()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestWatchSlow has the requests of other signers and requesters looked at while all of one requester
// hang.
func TestWatchSlow(t *testing.T) {
	api := &apiServer{listed: map[string][]*certificatesv1.CertificateSigningRequest{}}
	for i := range 60 {
		api.listed["spec.signerName="+ours] = append(api.listed["spec.signerName="+ours], filed(fmt.Sprint("slow", i), ours, "slow", i))
	}
	api.listed["spec.signerName="+ours] = append(api.listed["spec.signerName="+ours], filed("honest", ours, "another", 99))
	api.listed["spec.signerName="+builtIn] = []*certificatesv1.CertificateSigningRequest{filed("honest", builtIn, "slow", 99)}
	m, over, done := newManager(t, api), make(chan struct{}), make(chan struct{})
	var slow, honest atomic.Int32
	_, err := Watch(m, []string{ours, builtIn}, Options{Name: "slow", Workers: 8, Done: NewRecent()}, func(ctx context.Context, key Key) (reconcile.Result, error) {
		if key.Name != "honest" {
			slow.Add(1)
			<-over
		} else if honest.Add(1) == 2 {
			close(done)
		}
		return reconcile.Result{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, m, done, func() {
		if n := slow.Load(); n > 2 {
			t.Errorf("%d of one requester are looked at, want 2 of 8 workers at most", n)
		}
		close(over)
	})
}

// TestFollow holds a bounded part of a flood, reads the rest when its turn comes, lists again
// the requests that were left out, and reports whether all of this works.
func TestFollow(t *testing.T) {
	const selector = "spec.signerName=" + ours
	api := &apiServer{listed: map[string][]*certificatesv1.CertificateSigningRequest{}}
	for i := range 12 {
		o := filed(fmt.Sprint("large", i), ours, "flood", i)
		o.Annotations = map[string]string{"a": strings.Repeat("a", 64<<10)}
		o.Spec.Request = []byte(strings.Repeat("r", 1200))
		denied := request(fmt.Sprint("denied", i), ours, "", certificatesv1.CertificateDenied)
		api.listed[selector] = append(api.listed[selector], o, denied)
		api.listed[selector+",metadata.name="+o.Name] = []*certificatesv1.CertificateSigningRequest{o}
	}
	m := newManager(t, api)
	p := newTestPending(ours)
	testkit.MustDo(p.follow(m))
	q := p.backlog
	api.fails.Store(true)
	if err := p.check(nil); err != nil {
		t.Errorf("before it is started: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	testkit.MustDo(p.Start(ctx, q))
	if err := p.check(nil); err == nil {
		t.Error("ready before the first list")
	}
	api.fails.Store(false)
	testkit.MustDo(p.WaitForSync(t.Context()))
	if err := p.check(nil); err != nil {
		t.Error(err)
	}
	if q.bytes > q.bounds.ofRequesterB || len(q.items) != 8 {
		t.Errorf("%d bytes of %d requests", q.bytes, len(q.items))
	}
	for _, name := range []string{"large0", "large7"} { // one is held, the other is not
		var o certificatesv1.CertificateSigningRequest
		if err := p.Get(t.Context(), client.ObjectKey{Name: name}, &o); err != nil || len(o.Spec.Request) != 1200 || o.Annotations != nil {
			t.Errorf("%s: %v, %d bytes, %d annotations", name, err, len(o.Spec.Request), len(o.Annotations))
		}
	}
	q.done(q.take(8)...)
	lists := api.lists.Load()
	for q.Len() == 0 {
		p.takeLeftOut()
		select {
		case <-t.Context().Done():
			t.Fatal("it is not listed again")
		case <-time.After(10 * time.Millisecond):
		}
	}
	if api.lists.Load() != lists+1 {
		t.Errorf("%d lists, want one more than %d", api.lists.Load(), lists)
	}
	p.takeLeftOut()
	over, end := context.WithCancel(t.Context())
	end()
	if err := newTestPending(ours).WaitForSync(over); !errors.Is(err, context.Canceled) {
		t.Errorf("not listed: %v", err)
	}
}

// TestExpires goes on with a list that expires.
func TestExpires(t *testing.T) {
	api := &apiServer{listed: map[string][]*certificatesv1.CertificateSigningRequest{"spec.signerName=" + ours: {
		request("a", ours, ""), request("b", ours, ""), request("c", ours, ""), request("d", ours, ""), request("e", ours, "")}}}
	p := newTestPending(ours)
	testkit.MustDo(p.follow(newManager(t, api)))
	api.expires.Store(true)
	if _, err := p.list(t.Context()); err != nil || api.expires.Load() || api.lists.Load() != 1 || len(p.backlog.items) != 5 {
		t.Errorf("%v, %d lists, %d held", err, api.lists.Load(), len(p.backlog.items))
	}
}

// TestWatchOpens delays no reader while a watch is opened, and ends the watch if a list is to come
// next by then.
func TestWatchOpens(t *testing.T) {
	api, p := &apiServer{}, newTestPending(ours)
	api.watched = func() {
		if !p.mu.TryLock() {
			t.Error("it is locked while the watch is opened")
			return
		}
		p.relist.Store(true)
		p.mu.Unlock()
	}
	testkit.MustDo(p.follow(newManager(t, api)))
	w := testkit.Must(p.watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"}))
	defer w.Stop()
	if t.Failed() {
		return
	}
	for range w.ResultChan() { // until it ends
	}
	if _, err := p.watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"}); !apierrors.IsResourceExpired(err) {
		t.Errorf("watched: %v, want it expired", err)
	}
}

// TestFollowFails says so while the requests cannot be listed or read, and keeps the requests that it had.
func TestFollowFails(t *testing.T) {
	api := &apiServer{listed: map[string][]*certificatesv1.CertificateSigningRequest{"spec.signerName=" + ours: {request("a", ours, ""), request("b", ours, ""), request("c", ours, "")}}}
	p := newTestPending(ours)
	testkit.MustDo(p.follow(newManager(t, api)))
	p.started = true
	for _, fails := range []bool{false, true, false} {
		api.fails.Store(fails)
		_, err := p.list(t.Context())
		if err == nil {
			err = p.Replace(nil, "1")
		}
		if (err != nil) != fails || (p.check(nil) != nil) != fails || len(p.backlog.items) != 3 {
			t.Errorf("lists fail: %t: %v, check: %v, %d held", fails, err, p.check(nil), len(p.backlog.items))
		}
		p.backlog.items[Key{ours, "a"}].object = nil // there was no room
		if err := p.Get(t.Context(), client.ObjectKey{Name: "a"}, new(certificatesv1.CertificateSigningRequest)); fails && (err == nil || apierrors.IsNotFound(err)) {
			t.Errorf("read while reading fails: %v", err)
		}
	}
	if p.takeLeftOut(); p.relist.Load() {
		t.Error("it is to be listed again, and nothing was left out")
	}
	p.relist.Store(true)
	for _, expired := range []bool{true, false} {
		w, err := p.watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
		if apierrors.IsResourceExpired(err) != expired || err != nil && !expired {
			t.Errorf("watched: %v, want it expired: %t", err, expired)
		}
		if err == nil {
			w.Stop()
		}
	}
}
