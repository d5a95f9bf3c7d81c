// A worker for jobs of the kind "resize" on Towpath's HTTP API, with nothing but the standard library.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"
)

type object = map[string]any

// call posts a body and decodes the answer. A refusal is an error with its word, such as lease_lost.
func call(path string, body object, answer any) error {
	sent, _ := json.Marshal(body)
	request, _ := http.NewRequest("POST", os.Getenv("TOWPATH_URL")+"/api/v1/"+path, bytes.NewReader(sent))
	request.Header.Set("Authorization", "Bearer "+os.Getenv("TOWPATH_TOKEN"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		var refused struct{ Error, Detail string }
		_ = json.NewDecoder(response.Body).Decode(&refused)
		return fmt.Errorf("%s: %s: %s", path, refused.Error, refused.Detail)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

type job struct {
	ID      string `json:"job_id"`
	Attempt int
	Payload struct{ File string } `json:"payload_json"`
}

// tell posts something about the attempt that this worker holds.
func (j job) tell(verb string, more object) error {
	more["job_id"], more["attempt"] = j.ID, j.Attempt
	return call("jobs/"+verb, more, &object{})
}

// run does the work. An error means that the attempt failed, or that the job is no longer this worker's.
func (j job) run() error {
	for _, percent := range []int{25, 50, 75} {
		time.Sleep(100 * time.Millisecond) // the work; a long one extends its lease
		err := j.tell("extend", object{"seconds": 60})
		if err == nil {
			err = j.tell("progress", object{"percent": percent, "message": "resizing " + j.Payload.File})
		}
		if err != nil {
			return err
		}
	}
	event := object{"domain": "pictures", "type": "resized", "payload": object{"file": j.Payload.File}}
	return call("events", event, &object{})
}

func main() {
	if err := call("executors/register", object{"kinds": []string{"resize"}}, &object{}); err != nil {
		log.Fatal(err)
	}
	log.Println("working on resize")
	for {
		var claimed struct{ Jobs []job }
		ask := object{"kinds": []string{"resize"}, "limit": 10, "wait_seconds": 20, "lease_seconds": 60}
		if err := call("jobs/claim", ask, &claimed); err != nil {
			log.Println(err) // the server is away: try again
			time.Sleep(time.Second)
		}
		for _, j := range claimed.Jobs {
			verb, body := "ack", object{"result": object{"file": j.Payload.File}}
			if err := j.run(); err != nil {
				verb, body = "fail", object{"error": err.Error()}
			}
			log.Println(verb, j.ID, j.tell(verb, body))
		}
	}
}
