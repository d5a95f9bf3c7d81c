-- Messages: e-mail and SMS, as the shipped process and the pattern to copy.
--
--   message                  what is to be said, and on which channel
--   email_message            an e-mail: addresses, subject, text
--   sms_message              a text message
--   send_email_task          one logical send: the ref of a process of the kind comms.send_email
--   send_email_task_frozen   what is handed to the provider, fixed at the first attempt
--   send_email_task_…        its facts: scheduled, succeeded, failed, lost, gave_up, cancelled, invalid
-- and the same for SMS.
--
-- Facts are append-only for every role. They are written by the recorders of sql/functions, in the
-- transaction of the process fact they mirror; that one terminal fact exists is decided there.
-- Bodies are here and nowhere else: jobs carry references.

create table comms.message (
    message_id      bigint        generated always as identity primary key,
    channel         text          not null,
    -- A producer that repeats itself with the same key finds its message.
    idempotency_key towpath.long_label,
    created_by      towpath.label not null,
    created_at      timestamptz   not null default towpath.fn_now(),
    constraint message_channel_check check (channel in ('email', 'sms')),
    constraint message_key_short_check check (octet_length(idempotency_key) <= 500),
    constraint message_key_uq unique (idempotency_key),
    -- So that an e-mail cannot refer to a text message.
    constraint message_channel_uq unique (message_id, channel)
);

create table comms.email_message (
    message_id   bigint  primary key,
    channel      text    not null default 'email',
    -- Null: the worker's own address.
    from_address text,
    to_addresses text[]  not null,
    cc           text[]  not null default '{}',
    bcc          text[]  not null default '{}',
    reply_to     text[]  not null default '{}',
    subject      text    not null,
    text_body    text,
    html_body    text,
    headers      jsonb   not null default '{}',
    constraint email_message_channel_check check (channel = 'email'),
    constraint email_message_fk foreign key (message_id, channel) references comms.message (message_id, channel)
);

create table comms.sms_message (
    message_id  bigint primary key,
    channel     text   not null default 'sms',
    from_number text,
    to_number   text   not null,
    text_body   text   not null,
    constraint sms_message_channel_check check (channel = 'sms'),
    constraint sms_message_fk foreign key (message_id, channel) references comms.message (message_id, channel)
);

-- E-mail ------------------------------------------------------------------------------------

create table comms.send_email_task (
    send_email_task_id bigint      generated always as identity primary key,
    message_id         bigint      not null references comms.email_message,
    scheduled_at       towpath.moment not null,
    created_at         timestamptz not null default towpath.fn_now()
);
-- send_email_task_message_idx: comms.message_list and comms.message_show.
create index send_email_task_message_idx on comms.send_email_task (message_id);

create table comms.send_email_task_frozen (
    send_email_task_id bigint      primary key references comms.send_email_task,
    provider_payload   jsonb       not null,
    frozen_at          timestamptz not null
);
create table comms.send_email_task_scheduled (
    send_email_task_id bigint      not null references comms.send_email_task,
    attempt_no         integer     not null,
    job_id             uuid        not null,
    recorded_at        timestamptz not null,
    primary key (send_email_task_id, attempt_no)
);
create table comms.send_email_task_succeeded (
    send_email_task_id bigint      primary key references comms.send_email_task,
    attempt_no         integer,
    transport          text,
    provider_id        text,
    recorded_at        timestamptz not null
);
-- outcome: transient, permanent or uncertain.
create table comms.send_email_task_failed (
    send_email_task_id  bigint           not null references comms.send_email_task,
    attempt_no          integer          not null,
    outcome             text             not null,
    transport           text,
    code                text,
    message             text,
    retry_after_seconds double precision,
    recorded_at         timestamptz      not null,
    primary key (send_email_task_id, attempt_no),
    constraint send_email_task_failed_outcome_check check (outcome in ('transient', 'permanent', 'uncertain'))
);
-- begun: whether it may have reached the provider.
create table comms.send_email_task_lost (
    send_email_task_id bigint      not null references comms.send_email_task,
    attempt_no         integer     not null,
    begun              boolean     not null,
    recorded_at        timestamptz not null,
    primary key (send_email_task_id, attempt_no)
);
create table comms.send_email_task_gave_up (
    send_email_task_id bigint      primary key references comms.send_email_task,
    reason             text,
    recorded_at        timestamptz not null
);
create table comms.send_email_task_cancelled (
    send_email_task_id bigint      primary key references comms.send_email_task,
    actor              text        not null,
    reason             text,
    recorded_at        timestamptz not null
);
create table comms.send_email_task_invalid (
    send_email_task_id bigint      primary key references comms.send_email_task,
    reason             text,
    recorded_at        timestamptz not null
);

-- SMS ------------------------------------------------------------------------------------

create table comms.send_sms_task (
    send_sms_task_id   bigint      generated always as identity primary key,
    message_id         bigint      not null references comms.sms_message,
    scheduled_at       towpath.moment not null,
    created_at         timestamptz not null default towpath.fn_now()
);
-- send_sms_task_message_idx: comms.message_list and comms.message_show.
create index send_sms_task_message_idx on comms.send_sms_task (message_id);

create table comms.send_sms_task_frozen (
    send_sms_task_id   bigint      primary key references comms.send_sms_task,
    provider_payload   jsonb       not null,
    frozen_at          timestamptz not null
);
create table comms.send_sms_task_scheduled (
    send_sms_task_id   bigint      not null references comms.send_sms_task,
    attempt_no         integer     not null,
    job_id             uuid        not null,
    recorded_at        timestamptz not null,
    primary key (send_sms_task_id, attempt_no)
);
create table comms.send_sms_task_succeeded (
    send_sms_task_id   bigint      primary key references comms.send_sms_task,
    attempt_no         integer,
    transport          text,
    provider_id        text,
    recorded_at        timestamptz not null
);
-- outcome: transient, permanent or uncertain.
create table comms.send_sms_task_failed (
    send_sms_task_id    bigint           not null references comms.send_sms_task,
    attempt_no          integer          not null,
    outcome             text             not null,
    transport           text,
    code                text,
    message             text,
    retry_after_seconds double precision,
    recorded_at         timestamptz      not null,
    primary key (send_sms_task_id, attempt_no),
    constraint send_sms_task_failed_outcome_check check (outcome in ('transient', 'permanent', 'uncertain'))
);
-- begun: whether it may have reached the provider.
create table comms.send_sms_task_lost (
    send_sms_task_id   bigint      not null references comms.send_sms_task,
    attempt_no         integer     not null,
    begun              boolean     not null,
    recorded_at        timestamptz not null,
    primary key (send_sms_task_id, attempt_no)
);
create table comms.send_sms_task_gave_up (
    send_sms_task_id   bigint      primary key references comms.send_sms_task,
    reason             text,
    recorded_at        timestamptz not null
);
create table comms.send_sms_task_cancelled (
    send_sms_task_id   bigint      primary key references comms.send_sms_task,
    actor              text        not null,
    reason             text,
    recorded_at        timestamptz not null
);
create table comms.send_sms_task_invalid (
    send_sms_task_id   bigint      primary key references comms.send_sms_task,
    reason             text,
    recorded_at        timestamptz not null
);

do $$
declare
    _table text;
begin
    for _table in
        select format('send_%s_task_%s', channel, fact)
          from unnest(array['email', 'sms']) channel,
               unnest(array['frozen', 'scheduled', 'succeeded', 'failed', 'lost', 'gave_up', 'cancelled', 'invalid']) fact
    loop
        execute format('create trigger %I before update or delete or truncate on comms.%I
            for each statement execute function towpath._append_only()', _table || '_append_only', _table);
    end loop;
end;
$$;

insert into towpath.process_kind (process_kind, supervisor, recorder, task_kind, before_handler, success_handler,
                                  error_handler, ref_field, max_attempts, on_uncertain, changed_by) values
    ('comms.send_email', 'comms.send_email_supervisor', 'comms.record_send_email_fact', 'email',
     'comms.get_email_payload', 'comms.record_email_success', 'comms.record_email_failure', 'send_email_task_id',
     -- One retry.
     2,
     -- The Message-ID stays the same, so that mail systems can tell a repetition.
     'retry', 'towpath'),
    ('comms.send_sms', 'comms.send_sms_supervisor', 'comms.record_send_sms_fact', 'sms',
     'comms.get_sms_payload', 'comms.record_sms_success', 'comms.record_sms_failure', 'send_sms_task_id',
     5, 'hold', 'towpath');
