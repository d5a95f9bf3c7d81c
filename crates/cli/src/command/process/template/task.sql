-- {{kind}}: a process whose attempts are {{task_kind}} jobs. Install it: psql -v ON_ERROR_STOP=1 -f {{name}}.sql
-- With email and sms the input is the message, which is sent with the same key at every attempt.
select towpath.process_kind('{{kind}}', task_kind => '{{task_kind}}', lease_seconds => 120, deadline_seconds => 86400);
