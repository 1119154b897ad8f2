package monitoring

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"testing"
)

// Server is a Prometheus that runs.
type Server struct{ URL string }

// get calls an endpoint of its API, and reads the data of the reply.
func (s *Server) get(t testing.TB, path string, query url.Values, data any) {
	t.Helper()
	response, err := http.Get(s.URL + "/api/v1/" + path + "?" + query.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	reply := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.Unmarshal(text, &reply); err != nil || reply.Status != "success" {
		t.Fatalf("%s %v: %v: %s", path, query, err, text)
	}
}

// Sample is one result of a query.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// Query returns the samples of an instant query, now.
func (s *Server) Query(t testing.TB, expr string) (samples []Sample) {
	t.Helper()
	var data struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	s.get(t, "query", url.Values{"query": {expr}}, &data)
	for _, r := range data.Result {
		value, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		samples = append(samples, Sample{r.Metric, value})
	}
	return samples
}

// Series returns the labels of all series that a selector matches.
func (s *Server) Series(t testing.TB, selector string) (series []map[string]string) {
	t.Helper()
	s.get(t, "series", url.Values{"match[]": {selector}}, &series)
	return series
}

// Firing returns the alerts that fire, sorted: now, or at any time in the last milliseconds.
func (s *Server) Firing(t testing.TB, milliseconds int64) (names []string) {
	t.Helper()
	expr := `ALERTS{alertstate="firing"}`
	if milliseconds > 0 {
		expr = fmt.Sprintf("last_over_time(%s[%dms])", expr, milliseconds)
	}
	for _, sample := range s.Query(t, expr) {
		names = append(names, sample.Labels["alertname"])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Panel is a panel of the dashboard.
type Panel struct {
	Title   string
	Targets []struct{ Expr string }
}

// Panels returns the panels of the shipped dashboard.
func Panels(t testing.TB) []Panel {
	t.Helper()
	var dashboard struct{ Panels []Panel }
	if err := json.Unmarshal([]byte(Read(t, "dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	return dashboard.Panels
}
