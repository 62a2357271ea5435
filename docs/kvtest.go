// Package kvtest gives each test a Kubernetes control plane of its own, by a farm:
//
//	kvstack farm --listen unix:///tmp/farm.sock
//	KVSTACK_FARM=unix:///tmp/farm.sock go test ./...
//
//	func TestOfMine(t *testing.T) {
//		cluster := kvtest.New(t, kvtest.Options{Clock: "virtual"})
//		...                               // client-go with cluster.Kubeconfig
//		cluster.Settle(t, 10*time.Second)
//		cluster.Advance(t, 24*time.Hour)
//	}
//
// Copy this file into your module; it needs the standard library alone. A farm that listens on TCP
// asks for its token, in KVSTACK_FARM_TOKEN.
package kvtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

const answerBytesMax = 1 << 20

// Options say which cluster is asked for. The zero value is one with one node.
type Options struct {
	From    string        // "empty" or "prepared"; empty: what the farm has
	Nodes   int           // 0: one; below 0: none
	Without []string      // "controllers", "scheduler", ...
	Clock   string        // "real", "virtual" or "paused"; empty: real
	TTL     time.Duration // 0: ten minutes
	Seed    int           // of names and uids
}

// Cluster is a control plane that answers.
type Cluster struct {
	Name       string `json:"name"`
	URL        string `json:"url"`
	Kubeconfig string `json:"kubeconfig"`
	Revision   int64  `json:"revision"`

	farm *farm
}

// Moving is something that is not done yet.
type Moving struct {
	Who  string `json:"who"`
	What string `json:"what"`
	Why  string `json:"why"`
}

// New returns a cluster that ends with the test, or with the process if that is killed.
func New(t testing.TB, options ...Options) *Cluster {
	t.Helper()
	farm, err := newFarm(os.Getenv("KVSTACK_FARM"), os.Getenv("KVSTACK_FARM_TOKEN"))
	if err != nil {
		t.Fatalf("kvtest: KVSTACK_FARM: %v", err)
	}
	asked := map[string]any{"owner": os.Getpid()}
	for _, each := range options {
		each.addTo(asked)
	}
	cluster := &Cluster{farm: farm}
	if err := farm.call("POST", "/clusters", asked, cluster); err != nil {
		t.Fatalf("kvtest: %v", err)
	}
	t.Cleanup(func() {
		if err := farm.call("DELETE", cluster.path(), nil, nil); err != nil {
			t.Errorf("kvtest: %v", err)
		}
	})
	return cluster
}

// Settle waits until controllers, scheduler and nodes have done all they can. The test fails if
// that is not so in time, by the cluster's clock, and says what still moves.
func (c *Cluster) Settle(t testing.TB, timeout time.Duration) {
	t.Helper()
	var state struct {
		Moving []Moving `json:"moving"`
	}
	path := c.path() + "/settled?timeout=" + url.QueryEscape(timeout.String())
	if err := c.farm.call("GET", path, nil, &state); err != nil {
		t.Fatalf("kvtest: %v", err)
	}
	if len(state.Moving) > 0 {
		t.Fatalf("kvtest: not settled after %v: %+v", timeout, state.Moving)
	}
}

// Advance lets time go by at once; all that is due meanwhile happens in order. The clock of the
// cluster has to be virtual.
func (c *Cluster) Advance(t testing.TB, by time.Duration) {
	t.Helper()
	asked := map[string]any{"advance": by.String()}
	if err := c.farm.call("POST", c.path()+"/clock", asked, nil); err != nil {
		t.Fatalf("kvtest: %v", err)
	}
}

// Now returns the cluster's time.
func (c *Cluster) Now(t testing.TB) time.Time {
	t.Helper()
	var told struct {
		Now time.Time `json:"now"`
	}
	if err := c.farm.call("GET", c.path()+"/clock", nil, &told); err != nil {
		t.Fatalf("kvtest: %v", err)
	}
	return told.Now
}

func (c *Cluster) path() string {
	return "/clusters/" + c.Name
}

func (o Options) addTo(asked map[string]any) {
	if o.From != "" {
		asked["from"] = o.From
	}
	if o.Nodes > 0 {
		asked["nodes"] = o.Nodes
	} else if o.Nodes < 0 {
		asked["nodes"] = 0
	}
	if len(o.Without) > 0 {
		asked["without"] = o.Without
	}
	if o.Clock != "" {
		asked["clock"] = o.Clock
	}
	if o.TTL != 0 {
		asked["ttl"] = o.TTL.String()
	}
	if o.Seed != 0 {
		asked["seed"] = o.Seed
	}
}

type farm struct {
	root   string
	token  string
	client *http.Client
}

func newFarm(at, token string) (*farm, error) {
	if path, isUnix := strings.CutPrefix(at, "unix://"); isUnix {
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
		transport := &http.Transport{DialContext: dial}
		return &farm{"http://farm", token, &http.Client{Transport: transport}}, nil
	}
	if !strings.HasPrefix(at, "http://") {
		return nil, fmt.Errorf("%q is neither unix:///path nor http://127.0.0.1:port", at)
	}
	return &farm{strings.TrimSuffix(at, "/"), token, &http.Client{}}, nil
}

func (f *farm) call(method, path string, asked, answered any) error {
	body, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(method, f.root+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if f.token != "" {
		request.Header.Set("Authorization", "Bearer "+f.token)
	}
	response, err := f.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, answerBytesMax))
	if err != nil {
		return err
	}
	isUnsettled := response.StatusCode == http.StatusGatewayTimeout
	if response.StatusCode >= 400 && !isUnsettled {
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, bytes.TrimSpace(data))
	}
	if answered == nil {
		return nil
	}
	return json.Unmarshal(data, answered)
}
